from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from sluice.ingest.bodies import decode_body, encoding_of
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge

TEXT = b'{"records":[]}' * 1000


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


PACKERS = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("header", [None, "", "identity", " Identity "])
def test_a_plain_body_is_handed_on_as_it_is(header: str | None) -> None:
    assert decode_body(TEXT, header) is TEXT


@pytest.mark.parametrize(
    ("header", "codec"), [("gzip", "gzip"), ("GZIP", "gzip"), ("x-gzip", "gzip"), ("zstd", "zstd")]
)
def test_compressed_bodies(header: str, codec: str) -> None:
    packed = PACKERS[codec](TEXT)
    assert decode_body(packed, header) == TEXT
    assert decode_body(packed + packed, header) == TEXT + TEXT, "members and frames may follow each other"
    assert decode_body(PACKERS[codec](b""), header) == b""


@pytest.mark.parametrize("header", ["br", "deflate", "gzip, gzip", "zstd,gzip", "x" * 1000])
def test_other_encodings_are_refused_by_name(header: str) -> None:
    with pytest.raises(InvalidRequest, match="Content-Encoding: must be one of") as caught:
        encoding_of(header)
    assert caught.value.fields["field"] == "Content-Encoding"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_cut_and_garbled_streams_are_refused(codec: str) -> None:
    packed = PACKERS[codec](TEXT)
    wrong = [b"", b"garbage" * 10, packed + b"xx", packed[:-1], packed[:-5], packed[:3], TEXT, packed + packed[:4]]
    for body in wrong:
        with pytest.raises(InvalidRequest, match=f"body: .*{codec} stream") as caught:
            decode_body(body, codec)
        assert caught.value.fields["field"] == "body"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_the_limit_holds_before_and_after_decompression(codec: str) -> None:
    """R-12: exactly the limit passes, one byte more does not."""
    packed = PACKERS[codec](bytes(1000))
    assert len(decode_body(packed, codec, max_bytes=1000)) == 1000
    with pytest.raises(RecordListTooLarge, match="999 bytes, decompressed"):
        decode_body(packed, codec, max_bytes=999)
    with pytest.raises(RecordListTooLarge):
        decode_body(TEXT, "identity", max_bytes=len(TEXT) - 1)
    with pytest.raises(RecordListTooLarge):
        decode_body(packed, codec, max_bytes=len(packed) - 1)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_stops_at_the_limit(codec: str) -> None:
    bomb = PACKERS[codec](bytes(1 << 20)) * 500
    before = pa.total_allocated_bytes()
    with pytest.raises(RecordListTooLarge):
        decode_body(bomb, codec, max_bytes=2 << 20)
    assert pa.total_allocated_bytes() - before < 1 << 20
