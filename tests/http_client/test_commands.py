"""The `sluice` command against a real service: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from sluice.api.cli import main; main()"]


def lines(result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_topics_from_create_to_delete(sluice, topic: str):
    name = f"{topic}-own"
    assert lines(sluice("topics", "create", name, "-p", "2", "-c", "retention.ms=1000")) == [
        f"created {name} with 2 partitions"
    ]
    assert name in {row["name"] for row in json.loads(sluice("topics", "list", "--json").stdout)}
    assert lines(sluice("topics", "alter", name, "-d", "retention.ms", "-c", "segment.bytes=2000", "-p", "3"))
    shown = json.loads(sluice("topics", "describe", name, "--json").stdout)
    assert (shown["partitions"], len(shown["offsets"])) == (3, 3)
    assert [(config["name"], config["value"]) for config in shown["configs"]] == [("segment.bytes", "2000")]
    assert "segment.bytes" in sluice("topics", "describe", name).stdout
    assert lines(sluice("topics", "delete", name)) == [f"deleted {name}"]
    assert sluice("topics", "describe", name).exit_code == 1


def test_lines_go_in_and_come_out(sluice, topic: str):
    stdin = b"k1:v1\nk2:\nplain\n"
    arguments = ("-K", ":", "-Z", "-H", "via=test", "-p", "1", "--json")
    told = json.loads(sluice("produce", topic, *arguments, stdin=stdin).stdout)
    assert told == {"topic": topic, "records": 3, "partitions": {"1": 3}}
    assert lines(sluice("consume", topic, "-e", "-f", r"%t %p %o %k=%s %S %h\n")) == [
        f"{topic} 1 0 k1=v1 2 via=test",
        f"{topic} 1 1 k2= -1 via=test",
        f"{topic} 1 2 =plain 5 via=test",
    ]
    assert lines(sluice("consume", topic, "-e", "-K", ":", "-Z")) == ["k1:v1", "k2:NULL", "NULL:plain"]
    envelopes = [json.loads(line) for line in lines(sluice("consume", topic, "-e", "--json"))]
    assert [(one["key"], one["value"]) for one in envelopes] == [("k1", "v1"), ("k2", None), (None, "plain")]
    assert envelopes[0]["headers"] == [{"name": "via", "value": "test"}]


@pytest.mark.parametrize("options", [(), ("--acks", "0"), ("--acks", "1"), ("-z", "gzip"), ("-z", "zstd")])
def test_every_way_to_produce(sluice, topic: str, options: tuple[str, ...]):
    assert sluice("produce", topic, "-p", "0", *options, stdin=b"\xff\n").exit_code == 0
    # Without an acknowledgement it may take a moment: a consumer that waits sees it all the same.
    assert sluice("consume", topic, "-p", "0", "-c", "1").stdout_bytes == b"\xff\n"


def test_where_consume_starts_and_stops(sluice, topic: str):
    sluice("produce", topic, "-p", "2", stdin=b"a\nb\nc\nd\n")
    for options, expected in {
        ("-o", "beginning", "-c", "2"): ["a", "b"],
        ("-o", "-1", "-p", "2", "-e"): ["d"],
        ("-o", "1", "-p", "2", "-c", "1"): ["b"],
        ("-o", "end", "-e"): [],
        ("-o", "s@2020-01-01T00:00:00Z", "-e"): ["a", "b", "c", "d"],
        ("-o", "s@2999-01-01", "-e"): [],
    }.items():
        assert lines(sluice("consume", topic, *options)) == expected


def test_json_values_are_checked(sluice, topic: str):
    assert sluice("produce", topic, "--format", "json", stdin=b'{"a": 1}\n').exit_code == 0
    refused = sluice("produce", topic, "--format", "json", stdin=b"{\n")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("sluice: 1 records were not produced")
    assert lines(sluice("consume", topic, "-e")) == ['{"a": 1}']


def test_offsets_and_deletion(sluice, topic: str):
    sluice("produce", topic, "-p", "0", stdin=b"a\nb\nc\n")
    assert lines(sluice("records", "delete", topic, "--before", "0:2")) == [f"{topic}-0 begins at 2"]
    rows = json.loads(sluice("offsets", topic, "--json", "--at", "2020-01-01").stdout)
    assert rows[0] == {"partition": 0, "earliest": 2, "latest": 3, "records": 1, "at": 2}


def test_bench_measures(sluice, topic: str):
    for way in ((), ("--arrow",)):
        figures = json.loads(sluice("bench", "produce", topic, "-n", "500", "--json", *way).stdout)
        assert figures["records"] == 500
    assert json.loads(sluice("bench", "consume", topic, "--json").stdout)["records"] == 1_000


def test_storage_is_shown_without_the_server(sluice, server, topic: str):
    sluice("produce", topic, "-p", "1", stdin=b"a\nb\n")
    root = ("--root", str(server.root))
    rows = json.loads(sluice("log-dirs", "--json", *root).stdout)
    (mine,) = [row for row in rows if row["topic"] == topic]
    assert (mine["partition"], mine["high_watermark"], mine["problem"]) == (1, 2, "")
    assert mine["bytes"] > 0
    asked = [row for row in json.loads(sluice("log-dirs", "--json").stdout) if row["topic"] == topic]
    assert [row["bytes"] for row in asked] == [0, mine["bytes"], 0]

    shown = json.loads(sluice("dump", f"{topic}/1", "--json", *root).stdout)
    (file,) = shown["files"]
    assert (shown["high_watermark"], file["records"]) == (2, 2)
    data = json.loads(sluice("dump", f"{shown['folder']}/{file['path']}", "--json", *root).stdout)
    assert (data["first_offset"], data["last_offset"]) == (0, 1)
    local = server.root / shown["folder"] / file["path"]
    assert '"value": "b"' in sluice("dump", str(local), "-n", "2").stdout
    (line,) = [line for line in lines(sluice("dump", f"{topic}/1", "-n", "1", *root)) if line.startswith("{")]
    assert json.loads(line).items() >= {"topic": topic, "partition": 1, "offset": 0, "value": "a"}.items()
    commit = json.loads(sluice("dump", f"{shown['folder']}/_delta_log/{1:020d}.json", "--json", *root).stdout)
    assert commit["written_by"] == "sluice"
    assert [added["path"] for added in commit["adds"]] == [file["path"]]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("topics", "describe", "none-such"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "create", "a b"), 1, "INVALID_TOPIC_EXCEPTION"),
        (("consume", "none-such"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("offsets", "none-such"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("records", "delete", "none-such", "--before", "0:1"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topics", "list", "--server", "http://127.0.0.1:1"), 1, "cannot reach http://127.0.0.1:1"),
        (("produce", "t", "--server", "http://127.0.0.1:1"), 1, "cannot reach http://127.0.0.1:1"),
        (("dump", "none-such/0", "--root", "/"), 1, "no such partition"),
        (("log-dirs", "--root", "./none-such"), 1, "does not exist"),
        (("topics", "list", "--server", "localhost"), 2, "must begin with http"),
        (("topics", "alter", "t"), 2, "nothing to change"),
        (("topics", "create", "t", "-c", "x"), 2, "must be NAME=VALUE"),
        (("consume", "t", "-o", "middle"), 2, "--offset 'middle'"),
        (("consume", "t", "-f", "%x"), 2, "%x is none of"),
        (("records", "delete", "t", "--before", "x"), 2, "PARTITION:OFFSET"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(sluice, arguments: tuple[str, ...], code: int, text: str):
    result = sluice(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert result.stderr.startswith("sluice: ")
    assert result.stderr.count("\n") == 1


def test_a_pipe_that_is_closed_early_is_no_error(server, sluice, topic: str):
    sluice("bench", "produce", topic, "-n", "20000", "--arrow")
    consume = subprocess.Popen(
        [*COMMAND, "consume", topic, "--server", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert consume.stdout is not None
    assert consume.stderr is not None
    consume.stdout.readline()
    consume.stdout.close()
    assert consume.wait(120) == 0
    assert consume.stderr.read() == b""
    consume.stderr.close()
