"""`sluice assign`: what the strategies would give to the members of a group. Asks no server and changes nothing."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sluice.api.commands.common import AsJson, fail, print_json, print_rows, usage
from sluice.api.commands.offline import NoServer, NoToken
from sluice.log_store.errors import InvalidRequest
from sluice.streaming.assignors import Assignment, Comparison, Question, Strategy, assign, compare, parse_question

_T = TypeVar("_T")


def assign_partitions(
    source: Annotated[
        str,
        typer.Option(
            "--input",
            "-i",
            help="JSON file with a question or a list of them; - is standard input.",
            show_default=False,
        ),
    ],
    strategy: Annotated[
        Strategy | None,
        typer.Option("--strategy", "-s", help="For questions that name none; default: range.", show_default=False),
    ] = None,
    comparing: Annotated[
        bool, typer.Option("--compare", help="Print what every strategy would cost, not an assignment.")
    ] = False,
    as_json: AsJson = False,
    _server: NoServer = None,
    _token: NoToken = None,
) -> None:
    """Print which member of a group would read which partitions. Always JSON, unless --compare is given."""
    if comparing and strategy is not None:
        usage("--compare shows every strategy: leave --strategy out")
    asked = _read(source)
    if comparing:
        compared = _answers(asked, lambda question: compare(question.partitions_per_topic, question.members))
        _print_comparisons(compared, single=not isinstance(asked, list), as_json=as_json)
        return
    assigned = _answers(asked, lambda question: _plain(_assigned(question, strategy or Strategy.RANGE)))
    typer.echo(json.dumps(assigned if isinstance(asked, list) else assigned[0]))


def _read(source: str) -> object:
    try:
        text = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return json.loads(text, object_pairs_hook=_without_repetition)
    except OSError as error:
        fail(f"--input {source}: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        fail(f"--input {source}: this is no JSON that can be read: {error}")


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of two entries with one name JSON readers silently drop the first; here that would be a member or a topic."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is twice in one object")
        found[name] = value
    return found


def _answers(asked: object, answer: Callable[[Question], _T]) -> list[_T]:
    """Nothing is printed before all are answered: what is on standard output is complete."""
    found = []
    for place, value in enumerate(asked if isinstance(asked, list) else [asked]):
        try:
            found.append(answer(parse_question(value)))
        except InvalidRequest as error:
            fail(f"question {place}: {error.message}" if isinstance(asked, list) else error.message)
    return found


def _assigned(question: Question, default: Strategy) -> Assignment:
    return assign(question.strategy or default, question.partitions_per_topic, question.members)


def _plain(assignment: Assignment) -> dict[str, list[tuple[str, int]]]:
    return {member: [(one.topic, one.partition) for one in partitions] for member, partitions in assignment.items()}


def _print_comparisons(compared: Sequence[Sequence[Comparison]], *, single: bool, as_json: bool) -> None:
    if as_json:
        shown = [[dataclasses.asdict(comparison) for comparison in one] for one in compared]
        print_json(shown[0] if single else shown)
        return
    for place, comparisons in enumerate(compared):
        print_rows([_row(one) for one in comparisons], as_json=False, title=None if single else f"question {place}")


def _row(comparison: Comparison) -> dict[str, object]:
    row = dataclasses.asdict(comparison)
    per_topic = row.pop("imbalance_per_topic")
    return {**row, "most uneven topic": _worst(per_topic)}


def _worst(per_topic: dict[str, int]) -> str:
    if not per_topic:
        return ""
    name = max(per_topic, key=per_topic.__getitem__)
    return f"{name}: {per_topic[name]}"
