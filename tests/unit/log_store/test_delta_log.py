"""Commits as bytes: checksum, identity, statistics; what another engine would see."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.delta_log import (
    TXN_END,
    TXN_EPOCH,
    TXN_START,
    DataFile,
    TableIdentity,
    commit_path,
    decode_commit,
    encode_commit,
)
from sluice.log_store.errors import CorruptCommit, UnsupportedFormat
from tests.support.logs import actions, append, append_one_by_one, folder_cluster, memory_cluster, timed

FILE = DataFile(
    path="00000000000000000005-1-abc.parquet",
    size=900,
    base_offset=5,
    end_offset=8,
    records=3,
    min_ms=1_700_000_000_001,
    max_ms=1_700_000_000_999,
    modified_ms=1_700_000_001_000,
    file_crc=1,
    footer_crc=0xFFFFFFFF,
    tags={"sluice.horizon": "12"},
)
IDENTITY = TableIdentity("table-id", "orders", "topic-id", 3, 17)
FORBIDDEN = ("deletionVectors", "rowTracking", "inCommitTimestamp", "columnMapping", "domainMetadata")


def encoded(**changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "commit_id": "unique",
        "timestamp_ms": 1_700_000_000_000,
        "operation": "STREAMING UPDATE",
        "details": {"kind": "append", "epoch": 4, "base": 5, "end": 8, "start": 2},
        "epoch": 4,
        "end_offset": 8,
        "log_start": 2,
        "adds": [FILE],
    }
    return encode_commit(**arguments | changes)


def sealed(data: bytes) -> bytes:
    """The same commit after an edit, with a checksum that fits again."""
    at = data.index(b'"sluiceCrc":"') + len(b'"sluiceCrc":"')
    blank = data[:at] + b"00000000" + data[at + 8 :]
    return blank[:at] + b"%08x" % zlib.crc32(blank) + blank[at + 8 :]


CLAIM = encoded(adds=[], details={"kind": "claim", "epoch": 4, "base": 8, "end": 8, "start": 2, "wal": "w"})
CREATE = encoded(adds=[], identity=IDENTITY)
PLAN = encoded(removes=[replace(FILE, path="00000000000000000005-1-old.parquet")])


def test_a_commit_round_trips() -> None:
    """I-2: the unique id travels in commitInfo; R-4: equal arguments give equal bytes."""
    commit = decode_commit(9, encoded())

    assert (commit.version, commit.commit_id, commit.ours) == (9, "unique", True)
    assert commit.adds == (FILE,)
    assert commit.txns == {TXN_EPOCH: 4, TXN_END: 8, TXN_START: 2}
    assert commit.details["base"] == 5
    assert encoded() == encoded()
    assert encoded() != encoded(commit_id="another")


@pytest.mark.parametrize("data", [encoded(), CLAIM, CREATE, PLAN], ids=["append", "claim", "create", "plan"])
def test_every_truncation_is_refused(data: bytes) -> None:
    """I-10: mid-line, at a line end, or empty."""
    decode_commit(1, data)
    for length in range(len(data)):
        with pytest.raises(CorruptCommit):
            decode_commit(1, data[:length])


@pytest.mark.parametrize("data", [encoded(), CLAIM, CREATE, PLAN], ids=["append", "claim", "create", "plan"])
def test_every_byte_counts(data: bytes) -> None:
    """I-10: each byte in turn, one bit of it flipped; a claim has no files that would betray it otherwise."""
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(CorruptCommit):
            decode_commit(1, bytes(broken))


@given(st.sampled_from([encoded(), CLAIM, CREATE, PLAN]), st.data())
def test_any_changed_byte_is_refused(data: bytes, draw: st.DataObject) -> None:
    """I-10: any value at any place."""
    position = draw.draw(st.integers(0, len(data) - 1))
    value = draw.draw(st.integers(0, 255).filter(lambda byte: byte != data[position]))
    with pytest.raises(CorruptCommit):
        decode_commit(1, data[:position] + bytes([value]) + data[position + 1 :])


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_nothing_of_ours(data: bytes) -> None:
    """I-10: garbage never passes for a commit of ours."""
    with contextlib.suppress(CorruptCommit):
        assert not decode_commit(1, data).ours


def test_zeros_are_refused() -> None:
    """I-10: what a file system leaves when it knew the size and not the content."""
    with pytest.raises(CorruptCommit):
        decode_commit(1, bytes(len(encoded())))


def test_ours_without_its_checksum_is_not_foreign() -> None:
    """I-10, I-3: an engine that stripped the checksum, or a damaged first line, is no stranger to be stepped over."""
    stripped = CLAIM.replace(b'"sluiceCrc"', b'"other"')
    with pytest.raises(CorruptCommit):
        decode_commit(1, stripped)


def test_version_0_is_plain_delta() -> None:
    """I-5: protocol (1, 2), isolation level, no table feature and no transaction retention; R-14: the format."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("orders", partitions=2)
        append(log, "orders", 1, timed(1))
        first = actions(cluster.store, "topics/orders/1", 0)
        topic_id = log.topic("orders").topic_id
        last = actions(cluster.store, "topics/orders/1", 1)

    protocol = next(action["protocol"] for action in first if "protocol" in action)
    metadata = next(action["metaData"] for action in first if "metaData" in action)
    assert protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert metadata["configuration"] == {
        "delta.deletedFileRetentionDuration": "interval 20 minutes",
        "delta.isolationLevel": "WriteSerializable",
        "sluice.format": "1",
        "sluice.topic": "orders",
        "sluice.topic.id": topic_id,
        "sluice.partition": "1",
    }
    assert metadata["partitionColumns"] == []
    text = msgspec.json.encode(first).decode()
    assert not [word for word in FORBIDDEN if word in text]
    assert "setTransactionRetentionDuration" not in text
    assert not any("protocol" in action or "metaData" in action for action in last)


def test_statistics_of_every_add_are_true(tmp_root: Path) -> None:
    """I-12: numRecords, and min, max and nullCount of offset and timestamp, equal to what the file holds."""
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, timed(30, 10, 20))
        append(log, "t", 0, timed(1_700_000_000_123))
        added = [a["add"] for v in range(3) for a in actions(cluster.store, "topics/t/0", v) if "add" in a]

    assert len(added) == 2
    for add in added:
        stats = msgspec.json.decode(add["stats"])
        table = pq.read_table(tmp_root / "topics/t/0" / add["path"])
        assert stats["numRecords"] == table.num_rows
        assert stats["nullCount"] == {"offset": 0, "timestamp": 0}
        for bounds, of in ((stats["minValues"], pc.min), (stats["maxValues"], pc.max)):
            assert bounds["offset"] == of(table["offset"]).as_py()
            moment = of(table["timestamp"]).as_py()
            assert bounds["timestamp"] == f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
        assert add["size"] == (tmp_root / "topics/t/0" / add["path"]).stat().st_size


def test_names_of_data_files() -> None:
    """I-4: `<20-digit base offset>-<epoch>-<unique>.parquet`, and no name comes twice."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "ab")
        log = cluster.reopen()
        append_one_by_one(log, "t", "c")
        names = [file.path for file in log.partition("t", 0).state.files]

    heads = [name.rsplit("-", 1)[0] for name in names]
    assert heads == [f"{0:020d}-1", f"{1:020d}-1", f"{2:020d}-2"]
    uniques = [name.rsplit("-", 1)[1] for name in names]
    assert len(set(uniques)) == 3
    assert all(len(u) == len("0" * 32 + ".parquet") for u in uniques)


def test_a_newer_format_is_refused() -> None:
    """R-14: an edit of version 0 with a valid checksum, so that nothing but the format can be what is refused."""
    newer = sealed(CREATE.replace(b'"sluice.format":"1"', b'"sluice.format":"2"'))
    with pytest.raises(UnsupportedFormat, match="format 2"):
        decode_commit(0, newer)


def test_a_partition_of_a_newer_format_is_not_opened() -> None:
    """R-14."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "a")
        path = commit_path("topics/t/0", 0)
        data = cluster.store.get(path).replace(b'"sluice.format":"1"', b'"sluice.format":"9"')
        cluster.store.replace(path, sealed(data))
        log = cluster.reopen()
        for use in (lambda: log.reads("t", 0).latest(), lambda: append_one_by_one(log, "t", "b")):
            with pytest.raises(UnsupportedFormat, match="Upgrade Sluice"):
                use()


def test_metadata_that_is_not_ours_is_refused() -> None:
    for key in (b"sluice.topic.id", b"sluice.format", b"sluice.partition"):
        with pytest.raises(CorruptCommit, match="not Sluice's"):
            decode_commit(0, sealed(CREATE.replace(key, b"x" * len(key))))


def test_an_add_without_statistics_is_refused() -> None:
    with pytest.raises(CorruptCommit, match="statistics"):
        DataFile.from_action({"path": "p", "size": 1, "modificationTime": 1, "stats": '{"numRecords":1}'})
