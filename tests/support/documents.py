"""What the documents hold that a machine can check: fenced blocks, commands, links, tables, metric names.

::

    for block in blocks(README, "sh tour"): ...
    for command in commands(block.text): check_command(command)      # AssertionError says what is wrong
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from sluice.api.cli import app
from sluice.jobs.__main__ import _parser as jobs_parser
from sluice.jobs.backup_command import _parse as parse_backup
from sluice.jobs.command_line import job_parser
from sluice.jobs.registry import job_named

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
METRIC = re.compile(r"\bsluice_[a-z_]+[a-z]\b(?!\.|/|-)")
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_HELP = ("--help",)
_PASSED_ON = ("jobs", "backup", "restore")
"""Commands whose arguments belong to a program of `sluice.jobs`."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks(document: Path, language: str | None = None) -> list[Block]:
    found = [Block(match[2].strip(), match[3]) for match in _FENCE.finditer(document.read_text())]
    return [block for block in found if language is None or block.language == language]


def anchors(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def column(document: Path, heading: str | None = None, number: int = 0) -> list[str]:
    """A column of the tables of a document, or of one of its sections, without the heads."""
    text = document.read_text()
    if heading is not None:
        text = re.split(r"^## ", text.split(f"\n## {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    rows = re.findall(r"^\|(.*)\|$", text, flags=re.MULTILINE)
    return [row.split(" | ")[number].strip() for row in rows if not re.match(r"[-:| ]+$", row)]


# --- commands ------------------------------------------------------------------------------------


def commands(text: str) -> Iterator[list[str]]:
    """The words of every `sluice …` in a block of shell lines, without pipes and redirections."""
    script = re.sub(r"<<'END'\n.*?^END$", "", text, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ")
    for line in script.splitlines():
        if line.startswith((">>>", "sluice: ")) or "sluice " not in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word[0] in "|&;<>()":
                if (start := _start(words)) is not None:
                    yield words[start:]
                words = ["to a file"] if word[0] in "<>" else []
            else:
                words.append(word)


def _start(words: list[str]) -> int | None:
    """Behind the program. A user may be called so too, as in a crontab: the last one is meant."""
    return max(
        (n + 1 for n, word in enumerate(words) if word == "sluice" or word.endswith("/bin/sluice")), default=None
    )


def check_command(words: list[str]) -> None:
    """That the command exists and has these options. AssertionError or SystemExit if not."""
    if words and words[0] in _PASSED_ON:
        _check_passed_on(words)
        return
    command, rest, path = _sluice(), list(words), ["sluice"]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        path.append(rest.pop(0))
        assert path[-1] in command.commands, f"there is no command {' '.join(path)}"
        command = command.commands[path[-1]]
    options = {
        name: not parameter.is_flag for parameter in command.params if _is_option(parameter) for name in parameter.opts
    }
    _check_options(rest, options, " ".join(path))


@cache
def _sluice() -> Any:
    return typer.main.get_command(app)


@cache
def _options_of_job(name: str) -> Mapping[str, bool]:
    parser = job_parser(job_named(name), name)
    return {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}


def _is_option(parameter: object) -> bool:
    return getattr(parameter, "param_type_name", "") == "option"


def _check_passed_on(words: list[str]) -> None:
    if words[0] != "jobs":
        parse_backup(words)  # SystemExit if it does not fit
    elif words[1:2] == ["run"] and len(words) > 2:
        _check_options(words[3:], _options_of_job(words[2]), f"sluice jobs run {words[2]}")
    elif len(words) > 1:
        jobs_parser().parse_args(words[1:])


def _check_options(words: list[str], options: Mapping[str, bool], command: str) -> None:
    """`options` says of each whether a value follows it."""
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if name in options:
            if options[name] and not equals:
                assert next(rest, None) is not None, f"{command}: {name} needs a value"
        else:
            assert not word.startswith("-") or word == "-" or word in _HELP, f"{command} has no option {word}"


# --- metrics -------------------------------------------------------------------------------------


def exposed_metrics(text: str) -> dict[str, str]:
    """Name and type of each metric in Prometheus' text format."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE))


def unknown_metrics(text: str, known: Mapping[str, str]) -> set[str]:
    """Names in a text, such as a query, that nobody serves. A histogram is known with its suffixes."""
    series = {f"{name}{suffix}" for name, kind in known.items() if kind == "histogram" for suffix in _SUFFIXES}
    return set(METRIC.findall(text)) - set(known) - series


_SUFFIXES = ("_bucket", "_sum", "_count")
