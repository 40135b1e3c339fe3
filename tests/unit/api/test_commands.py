"""The parts of the commands that need no server: formats, separators, offsets."""

from __future__ import annotations

import io
import json

import pytest
import typer

from sluice.api.client import At, FetchedRecord, Last
from sluice.api.commands.common import assignments, milliseconds
from sluice.api.commands.consume import start_of
from sluice.api.commands.printing import envelope, formatted
from sluice.api.commands.produce import records_of, split

RECORD = FetchedRecord(
    topic="t", partition=1, offset=7, timestamp_ms=5, key=b"k", value=b"v", headers=[("a", b"1"), ("b", None)]
)
EMPTY = FetchedRecord(topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=None)


def test_a_format_knows_what_kcat_knows():
    assert formatted(r"%t %p %o %k %s %T %h %K %S%%\n")(RECORD) == b"t 1 7 k v 5 a=1,b= 1 1%\n"


def test_nothing_is_printed_as_nothing_or_as_null():
    assert formatted("%k|%s|%S")(EMPTY) == b"||-1"
    assert formatted("%k|%s", b"NULL")(EMPTY) == b"NULL|NULL"


def test_an_unknown_token_is_refused():
    with pytest.raises(ValueError, match="%x is none of"):
        formatted("%x")


def test_the_envelope_names_what_is_no_text():
    shown = json.loads(
        envelope(FetchedRecord(topic="t", partition=0, offset=0, timestamp_ms=0, key=b"\xff", value=b"v"))
    )
    assert shown["key_base64"] == "/w=="
    assert shown["value"] == "v"
    assert "key" not in shown


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", "earliest"),
        ("end", "latest"),
        ("5", 5),
        ("-3", Last(count=3)),
        ("s@1700000000000", At(timestamp_ms=1_700_000_000_000)),
        ("s@1970-01-01T00:00:01", At(timestamp_ms=1_000)),
    ],
)
def test_where_to_start(text: str, start: object):
    assert start_of(text) == start


def test_a_start_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit) as caught:
        start_of("middle")
    assert caught.value.exit_code == 2
    assert "--offset 'middle'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "null", "expected"),
    [
        (b"k:v:w", False, (b"k", b"v:w")),
        (b"v", False, (None, b"v")),
        (b"k:", False, (b"k", b"")),
        (b"k:", True, (b"k", None)),
        (b":v", True, (None, b"v")),
    ],
)
def test_a_line_is_split_at_the_first_separator(line: bytes, null: bool, expected: tuple[bytes | None, bytes | None]):
    assert split(line, b":", null) == expected


def test_records_end_at_the_delimiter_wherever_the_reads_fall(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sluice.api.commands.produce.CHUNK", 2)
    assert list(records_of(io.BytesIO(b"a||bb||\n||c"), b"||")) == [b"a", b"bb", b"\n", b"c"]
    assert list(records_of(io.BytesIO(b"a\n\nb"), b"\n")) == [b"a", b"", b"b"]


def test_assignments_and_dates():
    assert assignments(["a=1", "b=x=y"], "--config") == {"a": "1", "b": "x=y"}
    assert milliseconds("1970-01-01T00:00:00.5Z", "--at") == 500
