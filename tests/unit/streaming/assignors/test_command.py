"""`sluice assign` from file or standard input to standard output and exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from sluice.api.cli import app

QUESTION: dict[str, Any] = {
    "partitions_per_topic": {"t": 3},
    "subscriptions": {"c1": ["t"], "c2": ["t"]},
    "previous": {"c2": [["t", 0], ["t", 1], ["t", 2]]},
}
BY_RANGE = {"c1": [["t", 0], ["t", 1]], "c2": [["t", 2]]}
BY_STICKY = {"c1": [["t", 2]], "c2": [["t", 0], ["t", 1]]}


def run(question: object, *options: str) -> Result:
    text = question if isinstance(question, str) else json.dumps(question)
    return CliRunner().invoke(app, ["assign", "--input", "-", *options], input=text)


@pytest.mark.parametrize(
    ("named", "options", "expected"),
    [
        ({}, [], BY_RANGE),
        ({}, ["--strategy", "sticky"], BY_STICKY),
        ({"strategy": "sticky"}, [], BY_STICKY),
        ({"strategy": "sticky"}, ["--strategy", "range"], BY_STICKY),
        ({}, ["--strategy", "cooperative-sticky"], {"c1": [], "c2": [["t", 0], ["t", 1]]}),
        ({"strategy": "roundrobin"}, ["--json"], {"c1": [["t", 0], ["t", 2]], "c2": [["t", 1]]}),
    ],
)
def test_the_question_names_the_strategy_then_the_option_then_range(named, options, expected):
    result = run({**QUESTION, **named}, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == expected


def test_a_list_is_answered_in_its_order():
    result = run([QUESTION, {**QUESTION, "strategy": "sticky"}])
    assert json.loads(result.stdout) == [BY_RANGE, BY_STICKY]
    assert json.loads(run([]).stdout) == []
    assert json.loads(run([QUESTION]).stdout) == [BY_RANGE]


def test_a_file_is_read(tmp_path: Path):
    path = tmp_path / "question.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(QUESTION).encode())
    result = CliRunner().invoke(app, ["assign", "--input", str(path)])
    assert json.loads(result.stdout) == BY_RANGE


def test_the_example_of_the_documentation():
    document = (Path(__file__).parents[4] / "docs" / "cli.md").read_text(encoding="utf-8")
    section = document[document.index("## assign") : document.index("## The client")]
    question, answer = re.findall(r"^```json\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    assert run(question).stdout == answer


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({**QUESTION, "subscriptions": 5}, "sluice: subscriptions: must be an object, not 5\n"),
        ([QUESTION, {**QUESTION, "strategy": "x"}], "sluice: question 1: strategy 'x' is none of range"),
        ({**QUESTION, "partitions_per_topic": {"t": -3}}, "sluice: partitions_per_topic: topic 't' has -3"),
        ({**QUESTION, "partitions_per_topic": {"t": 10**9}}, "at most 1000000 are allowed"),
        ("{", "this is no JSON"),
        ("", "this is no JSON"),
        ("[" * 100_000, "this is no JSON"),
        ('{"subscriptions": {"c": [], "c": []}}', "'c' is twice in one object"),
        ('{"partitions_per_topic": {"t": NaN}, "subscriptions": {}}', "partitions_per_topic['t']: must be an integer"),
    ],
)
def test_a_bad_question_is_one_line_of_error_and_no_output(question: object, message: str):
    result = run(question)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_cannot_be_read(tmp_path: Path):
    result = CliRunner().invoke(app, ["assign", "--input", str(tmp_path / "none.json")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No such file" in result.stderr


@pytest.mark.parametrize("options", [["--strategy", "best"], ["--compare", "--strategy", "sticky"], ["--unknown"]])
def test_wrong_usage(options: list[str]):
    result = run(QUESTION, *options)
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_input_is_required():
    assert CliRunner().invoke(app, ["assign"]).exit_code == 2


def test_a_comparison_for_people_and_for_programs():
    table = run(QUESTION, "--compare").stdout
    assert all(word in table for word in ("range", "roundrobin", "cooperative-sticky", "moved", "t: 1"))
    found = {row["strategy"]: row for row in json.loads(run(QUESTION, "--compare", "--json").stdout)}
    assert found["cooperative-sticky"] == {
        "strategy": "cooperative-sticky",
        "assigned": 2,
        "withheld": 1,
        "moved": 1,
        "imbalance": 2,
        "imbalance_per_topic": {"t": 2},
    }
    assert [row["moved"] for row in found.values()] == [2, 2, 1, 1]
    several = json.loads(run([QUESTION, QUESTION], "--compare", "--json").stdout)
    assert several == [list(found.values())] * 2


def test_a_comparison_of_nothing():
    assert run({"partitions_per_topic": {}, "subscriptions": {}}, "--compare").exit_code == 0
