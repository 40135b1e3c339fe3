"""A data file with any byte changed is refused, or gives exactly what was written (I-10)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store import parquet, reader
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import CorruptData
from sluice.log_store.records import make_batch, stored_table
from sluice.log_store.store import open_store
from sluice.log_store.topic import codec

NAME = f"{7:020d}-1-a.parquet"
ROWS = [
    {"key": b"k%d" % n, "value": None if n % 5 == 0 else b"value-%d" % n, "headers": [("h", b"x")] if n % 3 else None}
    for n in range(40)
]


def written(compression: str) -> tuple[bytes, DataFile, pa.Table]:
    table = stored_table([make_batch(ROWS, default_ms=5)], 7)
    encoded = parquet.encode(table, *codec(compression))
    return encoded.data.to_pybytes(), DataFile.of(NAME, encoded, 1), table


FILES = {compression: written(compression) for compression in ("uncompressed", "zstd", "snappy")}


def read(data: bytes, file: DataFile) -> Any:
    store = open_store("memory://")
    store.put(f"t/0/{NAME}", data)
    return pa.Table.from_batches(reader.scan(store, "t/0", [file], 0, 2**62))


@given(st.sampled_from(sorted(FILES)), st.integers(0, 10**9), st.integers(1, 255))
def test_no_changed_byte_passes(compression: str, position: int, change: int) -> None:
    """I-10: pages by their checksums, the footer by that of the add action, the rest is not read."""
    data, file, table = FILES[compression]
    position %= len(data)
    broken = data[:position] + bytes([data[position] ^ change]) + data[position + 1 :]
    try:
        found = read(broken, file)
    except CorruptData:
        return
    assert found.combine_chunks().equals(table.combine_chunks())


@given(st.sampled_from(sorted(FILES)), st.integers(0, 10**9))
def test_no_cut_passes(compression: str, length: int) -> None:
    """I-10."""
    data, file, _ = FILES[compression]
    try:
        read(data[: length % len(data)], file)
    except CorruptData:
        return
    raise AssertionError("a cut file was read")


def test_nothing_changed_nothing_lost() -> None:
    for data, file, table in FILES.values():
        assert read(data, file).combine_chunks().equals(table.combine_chunks())
