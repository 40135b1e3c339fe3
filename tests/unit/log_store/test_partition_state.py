"""The pure replay of commits: what fits, what is refused, what a state snapshot keeps (I-3, I-6, R-5)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from sluice.log_store.delta_log import Commit, DataFile, TableIdentity, decode_commit, encode_commit
from sluice.log_store.errors import CorruptCommit, ForeignCommit
from sluice.log_store.partition_state import RECENT_PLANS, EpochClaim, PartitionState

IDENTITY = TableIdentity("table", "orders", "topic-id", 0, 17)


def data_file(base: int, end: int, name: str = "a") -> DataFile:
    return DataFile(f"{base:020d}-1-{name}.parquet", 10, base, end, end - base, 1, 2, 3)


class Maker:
    """Commits that follow one another."""

    def __init__(self) -> None:
        self.version, self.end, self.start, self.epoch = -1, 0, 0, 1

    def make(self, kind: str, *, end: int | None = None, **changes: Any) -> Commit:
        base, self.version = self.end, self.version + 1
        self.end = base if end is None else end
        self.start = changes.pop("start", self.start)
        self.epoch = changes.pop("epoch", self.epoch)
        arguments = {"adds": changes.pop("adds", ()), "removes": changes.pop("removes", ())}
        identity = changes.pop("identity", IDENTITY if kind == "create" else None)
        details = {"kind": kind, "epoch": self.epoch, "base": base, "end": self.end, "start": self.start, **changes}
        data = encode_commit(
            commit_id=f"id-{self.version}",
            timestamp_ms=5,
            operation=kind,
            details=details,
            epoch=self.epoch,
            end_offset=self.end,
            log_start=self.start,
            identity=identity,
            **arguments,
        )
        return decode_commit(self.version, data)

    def append(self, count: int, **changes: Any) -> Commit:
        changes.setdefault("adds", [data_file(self.end, self.end + count)])
        return self.make("append", end=self.end + count, **changes)


def created(maker: Maker) -> PartitionState:
    state = PartitionState()
    state.apply(maker.make("create", wal="w1"))
    return state


def refused(state: PartitionState, commit: Commit, error: type[Exception] = CorruptCommit, match: str = ".") -> None:
    """Refused, and nothing has changed."""
    before = deepcopy(state)
    with pytest.raises(error, match=match):
        state.apply(commit)
    assert state == before


def test_appends_are_dense() -> None:
    """I-1: the log ends where the next commit begins."""
    maker = Maker()
    state = created(maker)
    state.apply(maker.append(3))
    state.apply(maker.append(2))

    assert (state.version, state.end, [f.base_offset for f in state.files]) == (2, 5, [0, 3])
    maker.end = 6
    refused(state, maker.append(1), match="the log before it ends at 5")


def test_offsets_never_go_back() -> None:
    """I-1: an end below the end, a start below the start, an older epoch."""
    maker = Maker()
    state = created(maker)
    state.apply(maker.append(4, start=2, epoch=3))
    for changes in ({"end": 3}, {"start": 1}, {"epoch": 2}):
        maker.version, maker.end, maker.start, maker.epoch = 1, 4, 2, 3
        refused(state, maker.make("claim", wal="w", **changes))


def test_a_missing_version_is_refused() -> None:
    """I-2: exactly last version + 1."""
    maker = Maker()
    state = created(maker)
    maker.append(1)
    refused(state, maker.append(1), match="version 2 does not follow 0")


def test_rows_must_be_as_many_as_offsets() -> None:
    """I-1, I-10."""
    maker = Maker()
    state = created(maker)
    refused(state, maker.append(3, adds=[data_file(0, 2)]), match="other rows than its offsets")


def test_txn_actions_must_agree() -> None:
    """I-3: epoch and log end stand in txn actions too, and a commit without them is no commit of ours."""
    maker = Maker()
    state = created(maker)
    commit = maker.append(1)
    assert set(commit.txns) == {"sluice.epoch", "sluice.end", "sluice.start"}
    for txns in ({}, {**commit.txns, "sluice.epoch": 9}, {**commit.txns, "sluice.end": 9}):
        refused(state, replace(commit, txns=txns), match="txn actions")


def test_only_version_0_may_change_the_table() -> None:
    """I-3, I-5: also under our own name."""
    maker = Maker()
    state = created(maker)
    refused(state, maker.make("claim", wal="w", identity=IDENTITY), ForeignCommit, "protocol or metaData")
    refused(PartitionState(), Maker().make("create", wal="w", identity=None), match="no metaData")


def foreign(version: int, **changes: Any) -> Commit:
    return Commit(version=version, commit_id=None, timestamp_ms=1, details={}, engine="delta-rs", **changes)


@pytest.mark.parametrize(
    "changes",
    [{"changes_table": True}, {"adds": (data_file(0, 1),)}, {"removes": ("x",)}],
    ids=["protocol or metaData", "add", "remove"],
)
def test_a_foreign_change_is_never_merged(changes: dict[str, Any]) -> None:
    """I-3: the error names the engine."""
    state = created(Maker())
    refused(state, foreign(1, **changes), ForeignCommit, "written by delta-rs")


def test_a_foreign_commit_without_files_is_stepped_over() -> None:
    """I-3: a `txn` or `commitInfo` of somebody else changes nothing but the version."""
    maker = Maker()
    state = created(maker)
    before = deepcopy(state)
    state.apply(foreign(1, txns={"spark-query": 4}))

    assert state == replace(before, version=1)
    maker.version = 1
    state.apply(maker.append(2))
    assert state.end == 2


def test_removing_what_is_not_live_changes_nothing() -> None:
    maker = Maker()
    state = created(maker)
    state.apply(maker.append(1))
    refused(state, maker.make("plan", removes=[data_file(5, 6)]), match="not live")


def test_a_reader_keeps_its_list() -> None:
    """A plan replaces the list of files; what a reader took stays as it was."""
    maker = Maker()
    state = created(maker)
    state.apply(maker.append(1))
    state.apply(maker.append(1))
    view = state.files
    merged = [data_file(0, 2, "m")]
    state.apply(maker.make("plan", adds=merged, removes=list(view), plan={"id": "p", "kind": "merge"}))

    assert len(view) == 2
    assert state.files == merged
    assert state.plans == {"p": 3}


def full_state() -> PartitionState:
    maker = Maker()
    state = created(maker)
    state.apply(maker.append(4, ms=70, producers=[[2, 0, 0, 4, 0, 70, 0, 0, 0]], active=[0, 10, 1, 2, 3]))
    state.apply(maker.make("claim", wal="w2", epoch=2))
    topic_mode = [3, 1, 0, 2, 4, 90, 8, 77, 2]
    state.apply(maker.append(2, ms=90, producers=[topic_mode], rolls=[4], active=[4, 10, 1, 2, 3]))
    compaction = {"id": "c", "kind": "compact", "first_dirty": 4}
    state.apply(maker.make("plan", adds=[data_file(0, 2, "c")], removes=[state.files[0]], plan=compaction))
    return state


def test_a_snapshot_holds_all_but_the_files() -> None:
    """R-5: epochs, windows, log start, rolls, first dirty offset, plan ids; I-6: it comes back equal."""
    state = full_state()
    again, files, crc = PartitionState.from_snapshot(state.to_snapshot())

    assert (files, crc) == (2, state.checkpoint_crc())
    assert again == replace(state, files=[], removed={}, identity=None)
    assert (again.first_dirty, again.last_cleaning, again.plans) == (4, 4, {"c": 4})
    assert again.claims == [EpochClaim(1, "w1", 0), EpochClaim(2, "w2", 4)]
    assert again.producers.get(3).entries[0].crc == 77  # type: ignore[union-attr]


def test_a_snapshot_forgets_claims_without_rows() -> None:
    """R-5: claims that own no row say nothing any more; the newest is kept."""
    maker = Maker()
    state = created(maker)
    for epoch in (2, 3, 4):
        state.apply(maker.make("claim", wal=f"w{epoch}", epoch=epoch))
    assert PartitionState.from_snapshot(state.to_snapshot())[0].claims == [EpochClaim(4, "w4", 0)]


def test_every_damage_to_a_snapshot_is_seen() -> None:
    """R-5, I-10: one bit anywhere, or any cut."""
    data = full_state().to_snapshot()
    for position in range(len(data) - 1):  # the last byte is the line end
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        with pytest.raises(CorruptCommit):
            PartitionState.from_snapshot(bytes(broken))
        with pytest.raises(CorruptCommit):
            PartitionState.from_snapshot(data[:position])


def test_plan_ids_are_bounded() -> None:
    """R-5: recent ones only."""
    maker = Maker()
    state = created(maker)
    for number in range(RECENT_PLANS + 5):
        state.apply(maker.make("plan", plan={"id": f"p{number}", "kind": "merge"}))
    assert len(state.plans) == RECENT_PLANS
    assert "p4" not in state.plans
    assert "p5" in state.plans


def test_rolls_below_the_log_start_go() -> None:
    """R-10: but for the one with which the first segment begins."""
    maker = Maker()
    state = created(maker)
    for _ in range(4):
        state.apply(maker.append(1, rolls=[maker.end]))
    assert state.rolls == [0, 1, 2, 3]
    state.apply(maker.make("plan", start=2, plan={"id": "d", "kind": "delete_records"}))
    assert state.rolls == [2, 3]


def test_rows_of_another_wal() -> None:
    """R-2: whose rows stand at or above an offset."""
    state = full_state()
    assert state.rows_of_other_wal(0, "w1")
    assert state.rows_of_other_wal(3, "w2")
    assert not state.rows_of_other_wal(4, "w2")
    assert state.rows_of_other_wal(0, "w3")
    assert not state.rows_of_other_wal(6, "w3")


def test_expiry_of_producers() -> None:
    state = full_state()
    state.expire_producers(90 + 9, 30, ())
    assert set(state.producers) == {2, 3}
    state.expire_producers(70 + 30, 30, ())
    assert set(state.producers) == {3}
