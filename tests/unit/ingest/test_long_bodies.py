"""Long bodies are cut between their records: the same rows, the same refusals, and no long call of the parser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sluice.ingest import binary_v2, json_v2, json_v3, long_bodies
from sluice.ingest.limits import IngestLimits
from sluice.ingest.long_bodies import LONG, PIECE, Piece, decode_long, pieces_of
from sluice.ingest.request import Decoded
from sluice.log_store.errors import ClientError, InvalidRequest, MessageTooLarge, RecordListTooLarge
from tests.support.bodies import NOW_MS, v2

RECORDS = [
    b'{"value":{"a":[{"b":"},{"},{"c":1}]}}',
    b' {"key" : "k\\\\\\"{[" , "value":null}\n\t',
    b'{"partition":3,"timestamp":7,"headers":[{"name":"h","value":"QQ=="}]}',
    b"{}",
    '{"value":"é€😀"}'.encode(),
]
BAD = b'{"value":1,"nonsense":2}'


def long(body: bytes, size: int = 16, limits: IngestLimits | None = None) -> Decoded:
    return decode_long(
        body, json_v2.BODY, json_v2.columns_of, now_ms=NOW_MS, limits=limits or IngestLimits(), size=size
    )


def pieces(body: bytes, size: int, most: int = 1000, longest: int = 1000) -> list[Piece[Any]]:
    return list(pieces_of(body, json_v2.BODY, most=most, longest=longest, size=size))


def refusal(body: bytes, size: int = 16, limits: IngestLimits | None = None) -> ClientError:
    with pytest.raises(ClientError) as caught:
        long(body, size, limits)
    return caught.value


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 64, 100_000])
def test_the_rows_are_those_of_the_whole(size: int) -> None:
    body = v2(*RECORDS * 5)
    whole, cut = json_v2.decode(body, now_ms=NOW_MS), long(body, size)
    assert cut.batch.equals(whole.batch)
    assert cut.batch.validate(full=True) is None
    assert whole.explicit_partitions is not None
    assert cut.explicit_partitions is not None
    assert cut.explicit_partitions.tolist() == whole.explicit_partitions.tolist()


def test_a_piece_is_a_list_of_whole_records_and_knows_its_place() -> None:
    body = v2(*RECORDS * 20)
    cut = pieces(body, 64)
    assert len(cut) > 10
    assert max(len(piece.text) for piece in cut) < 64 + 2 * max(map(len, RECORDS))
    first = 0
    for piece in cut:
        assert piece.first == first
        assert isinstance(piece.text, memoryview) or body[piece.start :].startswith(piece.text[1:-1])
        first += len(piece.parsed(json_v2.BODY.elements) if piece.guessed is None else piece.guessed)
    assert first == 100


class Watched:
    """A decoder that notes how much it is given at once."""

    def __init__(self, decoder: msgspec.json.Decoder[Any], seen: list[int]) -> None:
        self._decoder = decoder
        self._seen = seen

    def decode(self, text: bytes) -> Any:
        self._seen.append(len(text))
        return self._decoder.decode(text)


@pytest.mark.parametrize("odd", [0, 1])
def test_no_call_of_the_parser_gets_more_than_a_piece(monkeypatch: pytest.MonkeyPatch, odd: int) -> None:
    """By the ordinary call of each decoder: this is what nobody has to wait for any more."""
    seen: list[int] = []
    for module, name in ((json_v2, "BODY"), (binary_v2, "BODY"), (json_v3, "_BODY")):
        kind = getattr(module, name)
        elements = replace(
            kind.elements, listed=Watched(kind.elements.listed, seen), one=Watched(kind.elements.one, seen)
        )
        watched = replace(kind, whole=Watched(kind.whole, seen), elements=elements)
        monkeypatch.setattr(module, name, watched)

    def checked(count: int, found: int) -> None:
        assert found == count
        assert len(seen) > LONG // PIECE
        assert max(seen) < PIECE + 1000
        assert sum(seen) < 3 * LONG
        seen.clear()

    record = b'{"value":"' + b"QUJD" * 25 + b'"}'
    other = b'{"key":"QUJD","value":null}' * odd  # no two records begin alike: nothing to guess by
    records = [record, other] * (LONG // len(record) + 100)
    records = list(filter(None, records))
    checked(len(records), json_v2.decode(v2(*records), now_ms=NOW_MS).count)
    checked(len(records), binary_v2.decode(v2(*records), now_ms=NOW_MS).count)
    entries = [b'{"id":"%d","value":{"type":"STRING","data":"%b"}}' % (n, b"x" * 300) for n in range(8_000)]
    ids, partly = json_v3.decode_batch(b'{"entries":[' + b",".join(entries) + b"]}", now_ms=NOW_MS)
    checked(8_000, partly.decoded.count)
    assert ids == [str(n) for n in range(8_000)]


def test_what_looks_like_the_end_of_a_record_is_not_taken_for_one() -> None:
    """A guess is proved by the parser: here all that can be guessed stands inside of values."""
    look_alike = b'{"value":[{"a":"x"},{"value":1},{"value":"},{\\"value\\":"}]}'
    for count in (1, 2, 30):
        body = v2(b'{"value":0}', b'{"value":1}', *[look_alike] * count)
        for size in (1, 16, 40, 64, 100):
            assert long(body, size).batch.equals(json_v2.decode(body, now_ms=NOW_MS).batch)


@pytest.mark.parametrize("at", [0, 1, 7, 49])
def test_a_refusal_names_the_place_in_the_body(at: int) -> None:
    records = [b'{"value":1}'] * 50
    for bad, field in (
        (BAD, "nonsense"),
        (b'{"timestamp":-1}', "timestamp"),
        (b'{"headers":[{"name":1}]}', "headers[0].name"),
        (b'{"value":' + b"[" * 65 + b"]" * 65 + b"}", "value"),
        (b'{"key":' + b"[" * 65 + b"]" * 65 + b"}", "key"),
    ):
        body = v2(*records[:at], bad, *records[at:])
        error = refusal(body)
        with pytest.raises(InvalidRequest) as whole:
            json_v2.decode(body, now_ms=NOW_MS)
        assert (error.fields["field"], error.message) == (f"records[{at}].{field}", whole.value.message)


@pytest.mark.parametrize(
    "body",
    [
        v2(*RECORDS)[:-1], v2(*RECORDS)[:-2], v2(*RECORDS)[:-4], v2(*RECORDS, b""), v2(b"", *RECORDS),
        v2(b"{}", b"", b"{}"), v2(b"{}", b"1"), v2(b"{}", b"[]"), v2(b"{}", b'{"value":[1}'), v2(b"{}", b'{"value":1]'),
        v2(b"{} {}"), v2(b"{}", b'{"value":"\n"}'), v2(b"{}", b'{"value":"}'), v2(b"{}") + b"x", v2(b"{}")[:-2] + b"}]",
        v2(b"{}")[:-1] + b',"more":1}', v2(b"{}")[:-1] + b',"value_schema":"x"}', b'{"more":1,' + v2(b"{}")[1:],
        b'{"records":{}}', b'{"records":[]}', b'{"records":null}', b"[" + v2(b"{}") + b"]", b"", b" ", b"{",
        b'{"records"', b'{"records":', b'{"records":[', b'{"records":[{', b'{"records":[{}', b'{"records":[{},',
        v2(b"\xff"), v2(b'{"value":"\xc3"}'), v2(b'{"value":"\\ud800"}'), b"\xef\xbb\xbf" + v2(b"{}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 5, 100])
def test_what_the_whole_parser_refuses_is_refused(body: bytes, size: int) -> None:
    with pytest.raises(ClientError):
        json_v2.decode(body, now_ms=NOW_MS)
    assert isinstance(refusal(body, size), InvalidRequest)


def test_the_place_of_a_wrong_byte_is_that_in_the_body() -> None:
    body = v2(*[b'{"value":1}'] * 30, b'{"value":tru}', *[b"{}"] * 30)
    with pytest.raises(InvalidRequest) as whole:
        json_v2.decode(body, now_ms=NOW_MS)
    assert refusal(body).message == whole.value.message
    assert "(byte " in whole.value.message


@pytest.mark.parametrize("size", [16, 100, 1000])
def test_text_in_which_the_scan_goes_astray_is_told_as_what_it_is(size: int) -> None:
    """Not as too long, too spacious or cut: the place of the first wrong byte."""
    good = b'{"value":"abc"}'
    limits = IngestLimits(max_text_bytes=4 * size)
    for bad in (b'{"value":"a"bc"}', b'{"value":abc"}', b"{} {}", b'{"value":"abc"}}', b'{"value":[1}'):
        body = v2(*[good] * 20, bad, *[good] * (30 * size // len(good)))
        with pytest.raises(InvalidRequest) as whole:
            json_v2.decode(body, now_ms=NOW_MS)
        error, place = refusal(body, size, limits), whole.value.message.rpartition("(byte ")[2]
        assert isinstance(error, InvalidRequest)
        assert error.message.startswith("body: JSON is malformed: ")
        assert error.message.endswith(f"(byte {place}")


@pytest.mark.parametrize("atom", [b"-1.5", b"true", b"null", b'"\\u00e9"', b"1e-7"])
def test_a_long_record_is_told_as_too_long_wherever_it_is_cut(atom: bytes) -> None:
    """Of a text that is cut behind a sign, or in a word, the parser says more than that it ends too early."""
    limits = IngestLimits(max_text_bytes=500)
    for pad in range(len(atom) + 1):
        value = b" " * pad + b"[" + (atom + b",") * 1000 + b"1]"
        error = refusal(v2(b'{"value":%b}' % value), size=100, limits=limits)
        assert (error.error, error.fields["field"]) == ("MESSAGE_TOO_LARGE", "records[0]")


def test_a_name_that_looks_like_a_place_is_left_as_it_is() -> None:
    error = refusal(v2(*[b'{"value":1}'] * 30, b'{"(byte 5)":1}'))
    assert error.message == "records[30].(byte 5): unknown field"
    with pytest.raises(InvalidRequest) as whole:
        json_v2.decode(b'{"rec\\qrds":[{}]}', now_ms=NOW_MS)
    assert refusal(b'{"rec\\qrds":[{}]}').message == whole.value.message


def test_another_spelling_of_the_name_is_no_way_around() -> None:
    assert long(v2(*RECORDS).replace(b'"records"', b'"\\u0072ecor\\u0064s"')).count == len(RECORDS)
    assert long(b" \n{ \t" + v2(*RECORDS)[1:].replace(b'":[', b'" : [', 1) + b"\n ").count == len(RECORDS)


def test_a_second_list_is_refused() -> None:
    for second in (b'"records":[]', b'"records":[{}]', b'"\\u0072ecords":[{}]'):
        error = refusal(v2(b"{}")[:-1] + b"," + second + b"}")
        assert (error.fields["field"], error.message) == ("records", "records: must be given once")


def test_much_around_the_list_is_refused_without_being_parsed() -> None:
    much = b" " * (long_bodies._AROUND + 1)
    assert "must begin with" in refusal(much + v2(b"{}")).message
    assert "must end behind" in refusal(v2(b"{}") + much).message
    assert (
        "white space"
        in refusal(v2(*[b"{}" + much] * 3), limits=IngestLimits(max_text_bytes=len(much) + 10), size=1000).message
    )


def test_limits_hold_before_anything_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(pieces(v2(*[b"{}"] * 100), 8, most=100)) > 10
    with pytest.raises(RecordListTooLarge, match="records: must not be more than 99"):
        pieces(v2(*[b"{}"] * 100), 8, most=99)
    value = b'{"value":"' + b"x" * 100 + b'"}'
    assert long(v2(b"{}", value), limits=IngestLimits(max_text_bytes=len(value))).count == 2
    error = refusal(v2(b"{}", value, b"{}"), limits=IngestLimits(max_text_bytes=len(value) - 1))
    assert isinstance(error, MessageTooLarge)
    assert error.fields["field"] == "records[1]"
    monkeypatch.setattr(Piece, "parsed", None)
    endless = b'{"records":[{"value":[' + b"[]," * 10_000
    assert isinstance(refusal(endless, limits=IngestLimits(max_text_bytes=1000)), MessageTooLarge)


def test_headers_are_counted_over_all_pieces() -> None:
    record = b'{"headers":[{"name":""},{"name":""}]}'
    limits = IngestLimits(max_request_headers=20)
    assert long(v2(*[record] * 10), limits=limits).count == 10
    with pytest.raises(RecordListTooLarge, match="headers: a request must not have more than 20"):
        long(v2(*[record] * 11), limits=limits)


def batches(entries: Sequence[bytes], size: int) -> tuple[list[str], list[object]]:
    ids: list[str] = []
    return ids, list(json_v3._long(b'{"entries":[' + b",".join(entries) + b"]}", ids, IngestLimits(), size))


def test_entries_of_a_long_batch_fail_alone_and_by_their_place() -> None:
    good = b'{"id":"%d","value":{"type":"JSON","data":1}}'
    entries = [good % n for n in range(30)]
    entries[17] = b'{"id":"17","partition_id":-1}'
    ids, found = batches(entries, 64)
    assert ids == [str(n) for n in range(30)]
    assert [n for n, one in enumerate(found) if isinstance(one, InvalidRequest)] == [17]
    assert isinstance(found[17], InvalidRequest)
    assert found[17].fields["field"] == "entries[17].partition_id"
    assert (found[17].__context__, found[17].__traceback__) == (None, None)  # whose frames would keep the text
    entries[20] = b'{"value":null}'
    with pytest.raises(InvalidRequest, match=r"entries\[20\]\.id: must be given"):
        batches(entries, 64)
