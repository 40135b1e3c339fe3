"""The options of the consumer job: what is refused, and with which words."""

from __future__ import annotations

import pytest

from sluice.streaming.spark import job_run
from sluice.streaming.spark.job_options import Kind, Target, Trigger, UsageError, parse_options, parse_trigger

BASE = ["--topics", "orders", "--path", "/lake"]
GROUP = ["--topics", "orders", "--server", "http://h:1", "--group", "g"]


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("delta:/out", Target(Kind.DELTA, "/out")),
        ("delta:s3a://bucket/out", Target(Kind.DELTA, "s3a://bucket/out")),
        ("parquet:/out", Target(Kind.PARQUET, "/out")),
        ("console", Target(Kind.CONSOLE)),
        ("shop.billing:charge", Target(Kind.FUNCTION, "shop.billing:charge")),
    ],
)
def test_targets(given: str, target: Target):
    assert parse_options([*BASE, "--to", given, "--checkpoint", "/c"], {}).target == target
    assert str(target) == given


@pytest.mark.parametrize(
    ("given", "trigger", "seconds"),
    [
        ("processingTime", Trigger("processingTime", "0 seconds"), 0),
        ("processingTime=10 seconds", Trigger("processingTime", "10 seconds"), 10),
        ("processingTime=500ms", Trigger("processingTime", "500 milliseconds"), 0.5),
        ("processingTime=2m", Trigger("processingTime", "2 minutes"), 120),
        ("availableNow", Trigger("availableNow"), 0),
        ("once", Trigger("once"), 0),
    ],
)
def test_triggers(given: str, trigger: Trigger, seconds: float):
    assert parse_trigger(given) == trigger
    assert trigger.interval_s == seconds


def test_triggers_as_spark_takes_them():
    assert parse_trigger("once").arguments == {"once": True}
    assert parse_trigger("processingTime=1s").arguments == {"processingTime": "1 seconds"}


def test_what_the_source_is_given():
    options = parse_options(
        [
            *(*GROUP, "--to", "delta:/out", "--starting-offsets", "earliest"),
            *("--max-offsets-per-trigger", "10", "--option", "failOnDataLoss=false"),
        ],
        {"SLUICE_TOKEN": "secret"},
    )
    assert options.source == {
        "server": "http://h:1",
        "token": "secret",
        "subscribe": "orders",
        "group.id": "g",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
        "failOnDataLoss": "false",
        "includeHeaders": "true",
    }
    assert options.checkpoint is None


def test_the_server_may_come_from_the_environment_but_a_path_needs_none():
    here = {"SLUICE_SERVER": "http://env:1"}
    assert parse_options(["--topics", "t", "--to", "console"], here).server == "http://env:1"
    assert parse_options([*BASE, "--to", "console"], here).server is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "console", "--path", "/l"], "exactly one of --topics, --topics-pattern"),
        ([*BASE, "--topics-pattern", "x", "--to", "console"], "exactly one of --topics"),
        (["--topics", "t", "--to", "console"], "--server or --path must be given"),
        ([*BASE], "--to"),
        ([*BASE, "--to", "delta:"], "--to delta:: the path is missing"),
        ([*BASE, "--to", "delta:out"], "--to delta:out: the path must be absolute, or a URL"),
        ([*BASE, "--to", "kafka"], "--to 'kafka': must be delta:PATH"),
        ([*BASE, "--to", "a-b:c"], "--to 'a-b:c': must be delta:PATH"),
        ([*BASE, "--to", "delta:/o"], "--checkpoint: must be given"),
        ([*BASE, "--to", "console", "--group", "g"], "--group: needs --server"),
        ([*GROUP[:-1], "", "--to", "console"], "--group: must not be empty"),
        ([*BASE, "--to", "console", "--trigger", "hourly"], "--trigger 'hourly': must be"),
        ([*BASE, "--to", "console", "--trigger", "processingTime=soon"], "the interval must be such as"),
        ([*BASE, "--to", "console", "--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger"),
        ([*BASE, "--to", "console", "--each", "nothing"], "--each 'nothing': must be MODULE:FUNCTION"),
        ([*BASE, "--to", "console", "--dead-letter", "d", "--each", "m:f"], "--dead-letter: needs --server"),
        ([*GROUP, "--to", "console", "--dead-letter", "d"], "nothing can be rejected without --each or --json-schema"),
        ([*GROUP, "--to", "console", "--dead-letter", "orders", "--each", "m:f"], "which would never end"),
        ([*BASE, "--to", "console", "--option", "x"], "--option 'x': must be NAME=VALUE"),
        ([*BASE, "--to", "console", "--option", "Subscribe=u"], "--option Subscribe: is given twice"),
        ([*BASE, "--to", "console", "--unknown"], "--unknown"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], words: str):
    with pytest.raises(UsageError) as refused:
        parse_options(arguments, {})
    assert words in refused.value.message


def test_wrong_usage_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]):
    assert job_run.main(["--to", "console"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "consumer.py: exactly one of --topics, --topics-pattern and --option assign=… must be given"
    ]
