"""One partition under any history against a naive model: live, rebuilt and stock readers agree (I-1, I-6, I-8)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.log_store.engine import LogStore
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.snapshot import checkpoint_path, load, state_path
from tests import counts
from tests.support.logs import append, batch, fetched, folder_cluster, plan, rewrite, rows, stamp

FOLDER = "topics/t/0"
REBUILT = (
    "version",
    "end",
    "log_start",
    "epoch",
    "files",
    "producers",
    "rolls",
    "active",
    "first_dirty",
    "last_cleaning",
)


def facts(state: PartitionState) -> dict[str, Any]:
    """What a restart must find again (I-6)."""
    found = {name: getattr(state, name) for name in (*REBUILT, "plans", "append_ms", "identity")}
    return {**found, "files": list(state.files), "rolls": list(state.rolls), "plans": dict(state.plans)}


class PartitionHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="sluice-log-"))
        self.cluster = folder_cluster(self.root, checkpoint_interval_versions=10**9)
        self.rows: dict[int, bytes] = {}
        self.end, self.start = 0, 0
        self.sequences = {2: 0, 4: 0}
        self.last: dict[int, tuple[int, int, list[str]]] = {}
        self.applied: list[tuple[Plan, int]] = []
        self.serial = 0
        self.first_dirty = 0
        self.log: LogStore

    @initialize()
    def open_it(self) -> None:
        self.log = self.cluster.open()
        self.log.create_topic("t", configs={"segment.ms": 50})
        self.log.partition("t", 0).prepare()

    def teardown(self) -> None:
        self.cluster.__exit__(None)
        shutil.rmtree(self.root)

    @property
    def state(self) -> PartitionState:
        return self.log.partition("t", 0).state

    def texts(self, count: int) -> list[str]:
        self.serial += count
        return [f"v{self.serial - count + n}" for n in range(count)]

    def appended(self, base: int, texts: list[str]) -> None:
        assert base == self.end  # I-1
        self.rows |= {base + n: text.encode() for n, text in enumerate(texts)}
        self.end += len(texts)

    # --- appends -------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), ms=st.integers(0, 200))
    def append(self, count: int, ms: int) -> None:
        texts = self.texts(count)
        self.appended(append(self.log, "t", 0, batch(*texts, ms=ms)).base_offset, texts)

    @rule(producer=st.sampled_from([2, 4]), count=st.integers(1, 3))
    def append_idempotent(self, producer: int, count: int) -> None:
        texts, sequence = self.texts(count), self.sequences[producer]
        result = append(self.log, "t", 0, batch(*texts, ms=1), stamp=stamp(producer, sequence))
        assert not result.duplicate
        self.last[producer] = (sequence, result.base_offset, texts)
        self.sequences[producer] += count
        self.appended(result.base_offset, texts)

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.last)))
        sequence, base, texts = self.last[producer]
        result = append(self.log, "t", 0, batch(*texts, ms=1), stamp=stamp(producer, sequence))
        assert (result.duplicate, result.base_offset) == (True, base)

    # --- maintenance ---------------------------------------------------------------------------

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        wanted = data.draw(st.one_of(st.just(-1), st.integers(0, self.end)))
        self.start = max(self.start, self.end if wanted == -1 else wanted)
        assert self.log.delete_records("t", 0, wanted) == self.start
        self.rows = {offset: value for offset, value in self.rows.items() if offset >= self.start}

    def run_of_files(self, data: st.DataObject) -> list[Any]:
        """Neighbours inside one segment."""
        files = self.state.files
        first = data.draw(st.integers(0, len(files) - 1))
        roll = next((roll for roll in self.state.rolls if roll > files[first].base_offset), self.end)
        inside = [file for file in files[first:] if file.end_offset <= roll]
        return inside[: data.draw(st.integers(1, 4))]

    def apply(self, wanted: Plan) -> None:
        self.applied.append((wanted, self.log.apply_plan("t", 0, wanted)))

    @precondition(lambda self: self.state.files)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        self.apply(rewrite(self.log, "t", PlanKind.MERGE, self.run_of_files(data)))

    @precondition(lambda self: self.state.files)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        files = self.run_of_files(data)
        dropped = data.draw(st.sets(st.integers(files[0].base_offset, files[-1].end_offset - 1)))
        cleaned_to = data.draw(st.integers(files[-1].end_offset, self.end))
        self.first_dirty = max(self.first_dirty, self.state.first_dirty, cleaned_to)
        self.apply(
            rewrite(
                self.log,
                "t",
                PlanKind.COMPACT,
                files,
                keep=lambda offset: offset not in dropped,
                first_dirty=self.first_dirty,
            )
        )
        self.rows = {offset: value for offset, value in self.rows.items() if offset not in dropped}

    @rule(data=st.data())
    def retention(self, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(self.start, self.end))
        gone = tuple(file.path for file in self.state.files if file.end_offset <= wanted)
        self.apply(plan(PlanKind.RETENTION, self.state.version, removes=gone, log_start=wanted))
        self.start = wanted
        self.rows = {offset: value for offset, value in self.rows.items() if offset >= wanted}

    @precondition(lambda self: self.applied)
    @rule(data=st.data())
    def repeat_plan(self, data: st.DataObject) -> None:
        """R-7: harmless, whenever it comes."""
        wanted, version = data.draw(st.sampled_from(self.applied))
        assert self.log.apply_plan("t", 0, wanted) == version

    @rule()
    def checkpoint(self) -> None:
        self.log.partition("t", 0).checkpoint()

    # --- restarts ------------------------------------------------------------------------------

    @rule(crash=st.booleans(), damage=st.sampled_from(["none", "none", "state", "checkpoint", "hint"]))
    def restart(self, crash: bool, damage: str) -> None:
        before = facts(self.state)
        self.log.close(drain=not crash)
        self.hurt(damage)
        self.log = self.cluster.open()
        after = facts(self.state)
        assert after == before
        self.log.partition("t", 0).prepare()

    def hurt(self, what: str) -> None:
        """The newest snapshot or checkpoint, or the hint: older ones serve as well (I-6, R-5)."""
        made = [int(item.name[6:26]) for item in self.cluster.store.list(f"{FOLDER}/_sluice")]
        if not made or what == "none":
            return
        hint = f"{FOLDER}/_delta_log/_last_checkpoint"
        paths = {"state": state_path(FOLDER, max(made)), "checkpoint": checkpoint_path(FOLDER, max(made)), "hint": hint}
        data = self.cluster.store.get(paths[what])
        self.cluster.store.replace(paths[what], data[: len(data) // 2])

    # --- always --------------------------------------------------------------------------------

    @invariant()
    def readers_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = sorted(self.rows.items())
        assert rows(self.log, "t") == expected
        if expected:
            assert fetched(self.log, "t", self.start) == expected
        partition = self.log.partition("t", 0)
        assert (partition.log_start, partition.high_watermark, partition.log_end) == (self.start, self.end, self.end)

    @invariant()
    def storage_says_the_same(self) -> None:
        """I-6: a reader that opens now finds the live state."""
        if hasattr(self, "log"):
            loaded = load(self.cluster.store, FOLDER)
            assert loaded.problem is None
            assert facts(loaded.state) == facts(self.state)


TestPartitionHistory = PartitionHistory.TestCase
TestPartitionHistory.settings = hypothesis.settings(
    max_examples=max(12, counts.HYPOTHESIS_EXAMPLES // 16), stateful_step_count=counts.STATEFUL_STEPS
)
