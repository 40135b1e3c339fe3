"""Any sequence of appends, sync points, releases, parkings, restarts and crashes, against a model of a few lists."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sluice.log_store.wal import SyncPoint, Wal, WalBatch, WalEntryRef
from sluice.log_store.wal_pool import MAX_SPARES
from sluice.log_store.wal_values import PartitionKey, key_of
from tests import counts
from tests.support.wal import append, append_group, batch, open_wal, ref

PARTITIONS = [ref(partition) for partition in range(3)]
KEYS = [key_of(of) for of in PARTITIONS]
partitions = st.integers(0, len(PARTITIONS) - 1)
sizes = st.one_of(st.integers(0, 300), st.sampled_from([1500, 6000]))


class WalMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="sluice-wal-"))
        self.live: dict[PartitionKey, list[WalBatch]] = {key: [] for key in KEYS}
        self.points: dict[PartitionKey, SyncPoint] = {}
        self.parked: dict[Path, list[WalBatch]] = {}
        self.next = dict.fromkeys(KEYS, 0)
        self.epoch = 1
        self.version = 0
        self.wal: Wal = open_wal(self.home)

    def teardown(self) -> None:
        if hasattr(self, "wal"):
            self.wal.close()
            shutil.rmtree(self.home)

    def make(self, partition: int, size: int) -> WalBatch:
        key = KEYS[partition]
        made = batch(self.next[key], PARTITIONS[partition], epoch=self.epoch, size=size)
        self.next[key] += 1
        return made

    def written(self, made: WalBatch) -> None:
        self.live[key_of(made.ref)].append(made)

    @rule(what=st.lists(st.tuples(partitions, sizes), min_size=1, max_size=6))
    def append_each(self, what: list[tuple[int, int]]) -> None:
        for partition, size in what:
            made = self.make(partition, size)
            append(self.wal, made)
            self.written(made)

    @rule(what=st.lists(st.tuples(partitions, sizes), min_size=2, max_size=30))
    def append_as_group(self, what: list[tuple[int, int]]) -> None:
        made = [self.make(partition, size) for partition, size in what]
        append_group(self.wal, made[1:], made[0])
        for one in made:
            self.written(one)

    @rule(partition=partitions, share=st.floats(0, 1))
    def sync(self, partition: int, share: float) -> None:
        key = KEYS[partition]
        known = self.points.get(key, SyncPoint(0, 0)).end_offset
        self.version += 1
        point = SyncPoint(self.version, known + round((self.next[key] - known) * share))
        self.wal.note_synced({PARTITIONS[partition]: point})
        self.points[key] = point

    @rule()
    def sync_all(self) -> None:
        self.version += 1
        self.points = {key: SyncPoint(self.version, self.next[key]) for key in KEYS}
        self.wal.note_synced({of: self.points[key_of(of)] for of in PARTITIONS})

    @rule(partition=partitions, forget=st.booleans())
    def release(self, partition: int, forget: bool) -> None:
        self.wal.release(PARTITIONS[partition], forget=forget)
        self.live[KEYS[partition]] = []
        if forget:
            self.points.pop(KEYS[partition], None)

    @rule(partition=partitions, aside=st.booleans())
    def take_out(self, partition: int, aside: bool) -> None:
        """Park, or set aside, what is not covered by a sync point."""
        key = KEYS[partition]
        taken = [one for one in self.live[key] if one.end_offset > self.synced(key)]
        if not taken:
            return
        if aside:
            self.wal.set_aside(PARTITIONS[partition], taken, "for the test")
        else:
            self.parked[self.wal.park(PARTITIONS[partition], taken)] = taken
        self.live[key] = [one for one in self.live[key] if one not in taken]

    @rule()
    def unpark(self) -> None:
        if self.parked:
            path, _batches = self.parked.popitem()
            self.wal.unpark(path)

    @rule()
    def restart(self) -> None:
        self.wal.close()
        self.wal = open_wal(self.home)
        self.epoch += 1
        self.check_scan()
        assert "middle" not in [finding.severity for finding in self.wal.recovered.findings]

    @rule(
        what=st.lists(st.tuples(partitions, sizes), min_size=2, max_size=20),
        how=st.sampled_from(["truncate", "zero", "garbage", "page"]),
        share=st.floats(0, 1),
    )
    def crash(self, what: list[tuple[int, int]], how: str, share: float) -> None:
        """The last group was on its way: of its bytes only some are on disk, and nobody was told."""
        first, *rest = [self.make(partition, size) for partition, size in what]
        append_group(self.wal, rest, first)
        self.written(first)
        self.wal.close()
        unsynced = self.places_of(rest)
        hurt(self.home, unsynced, how, share)
        self.wal = open_wal(self.home)
        self.epoch += 1
        found = self.check_scan(optional=rest)
        for one in found:
            self.written(one)
        assert "middle" not in [finding.severity for finding in self.wal.recovered.findings]

    def places_of(self, batches: list[WalBatch]) -> list[WalEntryRef]:
        copy = self.home.with_name(self.home.name + "-copy")
        shutil.copytree(self.home, copy)
        with open_wal(copy) as wal:
            names = {(key_of(one.ref), one.base_offset, one.epoch) for one in batches}
            found = [e for known in wal.recovered.entries.values() for e in known]
            places = [e for e in found if (key_of(e.ref), e.base_offset, e.epoch) in names]
        shutil.rmtree(copy)
        return sorted(places, key=lambda e: (e.seq, e.position))

    def synced(self, key: PartitionKey) -> int:
        return self.points[key].end_offset if key in self.points else 0

    def check_scan(self, optional: Sequence[WalBatch] = ()) -> list[WalBatch]:
        """All that was acknowledged is there, in order and with its bytes; nothing released is. Returns the extras."""
        extras: list[WalBatch] = []
        scan = self.wal.recovered
        assert scan.sync_points == self.points
        for key in KEYS:
            found = [self.wal.read(entry) for entry in scan.entries.get(key, [])]
            extras += [one for one in found if one in optional]
            kept = [one for one in found if one not in optional]
            needed = [one for one in self.live[key] if one.end_offset > self.synced(key)]
            assert [one for one in kept if one.end_offset > self.synced(key)] == needed
            assert all(one in self.live[key] for one in kept)
            assert [one.base_offset for one in found] == sorted(one.base_offset for one in found)
        return extras

    @invariant()
    def parked_files_are_whole(self) -> None:
        if hasattr(self, "wal"):
            known = {file.path: [self.wal.read(e) for e in file.entries] for file in self.wal.parked()}
            assert known == self.parked

    @invariant()
    def the_folder_does_not_grow_for_nothing(self) -> None:
        if hasattr(self, "wal"):
            assert len(list(self.home.glob("spare-*"))) <= MAX_SPARES


def hurt(home: Path, unsynced: list[WalEntryRef], how: str, share: float) -> None:
    """Spoil bytes of the group in the file where it ends; what it wrote to files before that one was fsynced."""
    if not unsynced:
        return
    name = unsynced[-1].file
    inside = [entry for entry in unsynced if entry.file == name]
    start, end = inside[0].position, inside[-1].position + inside[-1].length
    at = start + round((end - start) * share)
    path = home / name
    data = bytearray(path.read_bytes())
    if how == "truncate":
        data = data[:at]
    elif how == "page":
        data[at : min(at + 512, end)] = bytes(len(data[at : min(at + 512, end)]))
    else:
        data[at:end] = (b"\0" if how == "zero" else b"\xa5") * (end - at)
    path.write_bytes(data)


# Every step opens files and starts threads: the full counts would take longer than a test may.
WalMachine.TestCase.settings = settings(
    max_examples=min(counts.HYPOTHESIS_EXAMPLES, 200), stateful_step_count=min(counts.STATEFUL_STEPS, 60)
)
TestWal = WalMachine.TestCase
