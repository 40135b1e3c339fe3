from __future__ import annotations

import pytest

from sluice.ingest import json_scan
from sluice.ingest.json_scan import LONG_NAME, ObjectSplitter, count_openings, has_long_name, too_deep, without_spacing
from sluice.log_store.errors import InvalidRequest, MessageTooLarge

OBJECTS = [b"{}", b'{"a":"}{\\"][\\\\"}', b'{"a":{"b":[1,{"c":"\xc3\xa9"}]}}', b'{"\\\\":"\\u0022"}', b'{ "x" : [ ] }']


def fed(stream: bytes, size: int, limit: int = 1000) -> list[bytes]:
    splitter = ObjectSplitter(limit)
    found = [text for at in range(0, len(stream), size) for text in splitter.feed(stream[at : at + size])]
    splitter.finish()
    return found


@pytest.mark.parametrize("separator", [b"", b"\n", b" \r\n\t "])
def test_objects_come_out_as_they_were_sent_however_they_are_cut(separator: bytes) -> None:
    stream = separator + separator.join(OBJECTS * 3) + separator
    for size in range(1, len(stream) + 1):
        assert fed(stream, size) == OBJECTS * 3


def test_an_object_comes_out_with_its_last_byte() -> None:
    splitter = ObjectSplitter(1000)
    assert splitter.feed(b'{"a":1') == []
    assert splitter.feed(b'} {"b"') == [b'{"a":1}']
    assert splitter.feed(b":2}") == [b'{"b":2}']
    assert splitter.feed(b"") == []
    splitter.finish()


@pytest.mark.parametrize("stream", [b"[1]", b"1 {}", b"{} ,{}", b'"a"', b"}", b"{}}", b"x", b"\xff", b"{}\x00"])
def test_anything_else_between_objects_is_refused(stream: bytes) -> None:
    for size in (1, 2, 100):
        with pytest.raises(InvalidRequest, match="must be a JSON object"):
            fed(stream, size)


@pytest.mark.parametrize("stream", [b"{", b'{}{"a', b'{"a":"\\', b'{"a":[}'])
def test_a_cut_stream_is_refused(stream: bytes) -> None:
    with pytest.raises(InvalidRequest, match="ends inside"):
        fed(stream, 3)


def test_one_object_is_limited_the_stream_is_not() -> None:
    assert len(fed(b'{"a":1}' * 5000, 64, limit=7)) == 5000
    for size in (1, 100):
        with pytest.raises(MessageTooLarge, match=r"records\[1\]: must not be larger than 7 bytes"):
            fed(b'{"a":1}{"a":12}', size, limit=7)
    with pytest.raises(MessageTooLarge):
        fed(b'{"a":"' + b"x" * 100, 10, limit=50)


def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'[{"a":"\\\\\\"[["},[[{}]]]' * 5
    whole = (fed(b"".join(OBJECTS), 50), [count_openings(text, n) for n in range(6)], too_deep(text, 3, len(text)))
    for piece in (1, 2, 3, 7):
        monkeypatch.setattr(json_scan, "PIECE", piece)
        monkeypatch.setattr(json_scan, "SHORT", 0)
        parts = (fed(b"".join(OBJECTS), 50), [count_openings(text, n) for n in range(6)], too_deep(text, 3, len(text)))
        assert parts == whole


def test_depth_is_that_of_brackets_outside_strings() -> None:
    assert count_openings(b'{"r":[{},{"[":"{"},{}]}', 3) == 3
    assert too_deep(b"[[[]]]", 3, 6) is None
    assert too_deep(b"[[[]]]", 2, 6) == 2
    assert too_deep(b'["[[[[[[["]', 2, 11) is None


@pytest.mark.parametrize("unit", [b"x", b'\\"', b"\\\\", b"\xc3\xa9", b'\\\\\\"'])
def test_long_names_are_found_long_strings_are_not(unit: bytes) -> None:
    """Values are skipped by the parser, names are not."""
    long = b'"' + unit * (LONG_NAME // len(unit) + 1) + b'"'
    short = b'"' + unit * 100 + b'"'
    for before in (b"", b" " * (LONG_NAME // 2), b'{"a":1},' * 10_000):
        assert has_long_name(before + b"{" + long + b" \n:1}")
        assert not has_long_name(before + b'{"a":' + long + b"}")
        assert not has_long_name(before + b"{" + short + b":" + long + b"," + short + b":1}")
    assert not has_long_name(b'{"a":' + b"1" * 3 * LONG_NAME + b"}")
    assert not has_long_name(b"")


def test_spacing_of_long_texts() -> None:
    text = b'{ "a b\\" " : [ 1 ,\t2 , "\\\\" ] ,\r\n "c" : " " } ' * 20_000
    assert without_spacing(text) == b'{"a b\\" ":[1,2,"\\\\"],"c":" "}' * 20_000


def test_a_long_name_is_found_behind_any_white_space() -> None:
    long = b'"' + b"x" * (LONG_NAME + 1) + b'"' + b" \n\t\r" * 50_000
    assert has_long_name(b"{" + long + b":1}")
    assert not has_long_name(b'{"a":' + long + b"}")
