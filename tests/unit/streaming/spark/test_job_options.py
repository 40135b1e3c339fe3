"""The options of the consumer job: what is refused, and with which words."""

from __future__ import annotations

import pytest

from sluice.streaming.spark import job_run
from sluice.streaming.spark.job_options import Kind, Target, Trigger, UsageError, parse_options, parse_trigger

BASE = ["--topics", "orders", "--path", "/lake"]
LETTERS = ["--server", "http://h:1", "--to", "console", "--each", "m:f", "--dead-letter", "orders"]
TWICE = ["--option", "minPartitions=2", "--option", "MINPARTITIONS=3"]
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
    ("given", "trigger"),
    [
        ("processingTime", Trigger("processingTime", "0 seconds")),
        ("processingTime=10 seconds", Trigger("processingTime", "10 seconds")),
        ("processingTime=500ms", Trigger("processingTime", "500 milliseconds")),
        ("processingTime=2m", Trigger("processingTime", "2 minutes")),
        ("availableNow", Trigger("availableNow")),
    ],
)
def test_triggers(given: str, trigger: Trigger):
    assert parse_trigger(given) == trigger


def test_triggers_as_spark_takes_them():
    # Not Spark's Once, after which a group hears nothing of the only batch: the job would read it again for ever.
    assert parse_trigger("once").arguments == {"availableNow": True}
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
        ([*BASE, "--to", "console", "--option", "Subscribe=u"], "--option Subscribe: use --topics"),
        ([*GROUP[:-2], "--to", "console", "--option", "group.id=g"], "--option group.id: use --group"),
        ([*BASE, "--to", "console", "--option", "server=http://h:1"], "--option server: use --server"),
        ([*BASE, "--to", "console", *TWICE], "--option MINPARTITIONS: is given twice"),
        ([*BASE, "--to", "console", "--option", "columns=value"], "--option columns: the job needs all of them"),
        ([*BASE, "--to", "console", "--option", "nonsense=1"], "unknown --option nonsense"),
        ([*BASE, "--to", "console", "--option", "minPartitions=0"], "--option minPartitions: must be at least 1"),
        ([*BASE, "--to", "console", "--starting-offsets", "yesterday"], "--starting-offsets: must be earliest, latest"),
        (["--topics-pattern", "(", "--path", "/l", "--to", "console"], "--topics-pattern: '(' is no pattern"),
        (["--topics", "t", "--server", "h:1", "--to", "console"], "--server: must be a URL"),
        ([*LETTERS, "--topics", "a, orders"], "which would never end"),
        ([*LETTERS, "--topics-pattern", ".*"], "which would never end"),
        ([*LETTERS, "--option", 'assign={"orders":[0]}'], "which would never end"),
        ([*LETTERS[:-1], "or ders", "--topics", "t"], "--dead-letter 'or ders': "),
        ([*BASE, "--to", "console", "--unknown"], "--unknown"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], words: str):
    with pytest.raises(UsageError) as refused:
        parse_options(arguments, {})
    assert words in refused.value.message


def test_dead_letters_beside_what_is_read():
    for given in (["--topics", "order"], ["--topics-pattern", "order"], ["--option", 'assign={"order":[0]}']):
        assert parse_options([*LETTERS, *given], {}).dead_letter == "orders"


@pytest.mark.parametrize("option", ["--each", "--to"])
def test_functions_that_are_not_there_are_wrong_usage(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(job_run, "make_session", lambda _: None)
    monkeypatch.setattr(job_run, "set_up_logging", lambda: None)
    for name, words in (("nowhere:f", "no module 'nowhere'"), ("json:nothing", "json has no 'nothing'")):
        others = ["--checkpoint", "/c"] if option == "--to" else ["--to", "console"]
        assert job_run.main([*BASE, *others, option, name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"consumer.py: {option} {name}: ")
        assert words in line


def test_wrong_usage_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]):
    assert job_run.main(["--to", "console"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "consumer.py: exactly one of --topics, --topics-pattern and --option assign=… must be given"
    ]
