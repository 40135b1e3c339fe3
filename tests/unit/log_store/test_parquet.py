"""Data files: codecs, checksums, statistics, exact round trips."""

from __future__ import annotations

import io
import itertools
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.log_store import parquet
from sluice.log_store.errors import CorruptData
from sluice.log_store.records import make_batch, stored_table
from sluice.log_store.topic import codec
from tests.support.logs import append, batch, folder_cluster, timed
from tests.unit.log_store.test_records import TRICKY

CODECS = {
    "producer": "ZSTD",
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "lz4": "LZ4",
    "uncompressed": "UNCOMPRESSED",
}


def decode(encoded: parquet.EncodedFile, data: bytes | None = None) -> pa.Table:
    source = pa.BufferReader(encoded.data if data is None else data)
    opened = parquet.open_file(source, "f", encoded.footer_crc)
    groups = list(range(opened.metadata.num_row_groups))
    return pa.Table.from_batches(parquet.read_groups(opened, groups, "f"), opened.schema_arrow)


@pytest.mark.parametrize("compression", CODECS)
def test_every_codec_keeps_every_record(compression: str) -> None:
    table = stored_table([make_batch(TRICKY, default_ms=9)], 3)
    encoded = parquet.encode(table, *codec(compression))

    assert decode(encoded).equals(table)
    metadata = pq.read_metadata(io.BytesIO(encoded.data))
    assert {metadata.row_group(0).column(i).compression for i in range(metadata.num_columns)} == {CODECS[compression]}


@pytest.mark.parametrize("compression", CODECS)
def test_the_topics_codec_is_the_files_codec(compression: str, tmp_root: Path) -> None:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"compression.type": compression})
        append(log, "t", 0, batch("a" * 500))
        file = log.partition("t", 0).state.files[0]

    metadata = pq.read_metadata(tmp_root / "topics" / "t" / "0" / file.path)
    assert metadata.row_group(0).column(0).compression == CODECS[compression]


def test_what_the_encoder_says_is_what_the_file_holds() -> None:
    """I-12: the numbers behind the statistics of the add action."""
    encoded = parquet.encode(stored_table([timed(50, 10), timed(90, 20)], 5))

    assert (encoded.base_offset, encoded.last_offset, encoded.records) == (5, 8, 4)
    assert (encoded.min_ms, encoded.max_ms) == (10, 90)
    assert encoded.size == len(encoded.data.to_pybytes())
    assert encoded.file_crc == zlib.crc32(encoded.data)


def test_statistics_stand_only_where_readers_prune() -> None:
    metadata = pq.read_metadata(io.BytesIO(parquet.encode(stored_table([batch("x")], 0)).data))
    names = {metadata.schema.column(i).path: metadata.row_group(0).column(i) for i in range(metadata.num_columns)}

    assert {name for name, column in names.items() if column.is_stats_set} == {"offset", "timestamp"}


def test_row_groups_are_an_offset_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 2_000)
    encoded = parquet.encode(stored_table([batch(*["v" * 50] * 100)], 1_000))
    bounds = parquet.group_offsets(parquet.open_file(pa.BufferReader(encoded.data), "f", None).metadata)

    assert len(bounds) > 2
    assert bounds[0][0] == 1_000
    assert bounds[-1][1] == 1_099
    assert all(high + 1 == low for (_, high), (low, _) in itertools.pairwise(bounds))


def test_pages_carry_checksums_that_are_verified() -> None:
    """I-10: in an uncompressed file nothing but the page checksum could see a changed value."""
    encoded = parquet.encode(stored_table([batch("needle-in-a-page")], 0), *codec("uncompressed"))
    data = bytearray(encoded.data)
    data[data.index(b"needle")] ^= 0x01

    assert pq.read_table(io.BytesIO(data)).column("value").to_pylist() == [b"oeedle-in-a-page"]
    with pytest.raises(CorruptData, match="checksum"):
        decode(encoded, bytes(data))


def test_a_changed_footer_is_refused() -> None:
    """I-10: pages have checksums of their own, the footer has that of the add action."""
    encoded = parquet.encode(stored_table([batch("a")], 0))
    for position in range(1, 100):
        data = bytearray(encoded.data)
        data[-position] ^= 0x01
        with pytest.raises(CorruptData):
            decode(encoded, bytes(data))


@pytest.mark.parametrize("size", [0, 4, 11, 60])
def test_a_cut_file_is_refused(size: int) -> None:
    encoded = parquet.encode(stored_table([batch("a")], 0))
    with pytest.raises(CorruptData):
        decode(encoded, encoded.data.to_pybytes()[:size])


def test_another_schema_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"offset": [1]}), sink)
    with pytest.raises(CorruptData, match="schema"):
        parquet.open_file(pa.BufferReader(sink.getvalue()), "f", None)
