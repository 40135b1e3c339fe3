"""Damage to what was not yet known to be on disk is repaired, damage to the rest is refused; never silent (I-10)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import CorruptData, IntegrityError
from sluice.log_store.records import make_batch
from tests import counts
from tests.support.harness import (
    NEVER_SYNCED,
    TOPIC,
    Process,
    delta_rows,
    log_path,
    our_rows,
    settings_of,
    table_path,
    versions,
    wait_until,
)
from tests.support.history import History, Rows, judge

Start = Callable[..., Process]

PRODUCERS = [["each", "partition", "all", 0], ["whole", "plain", "all", 0]]
ACKS = 24


class Crashed:
    """A log whose leader was killed before anything was synced, and what its clients had been told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.history = History.load(folder / "history.jsonl")

    def copy(self, target: Path) -> Crashed:
        shutil.copytree(self.folder, target)
        return Crashed(target)

    def recovered(self, changes: dict[str, object] | None = None) -> tuple[str, Rows]:
        """Open once, read everything; both readers agree and nothing that was acknowledged is lost."""
        with LogStore.open(settings_of(str(self.root), **NEVER_SYNCED, **changes or {})) as log:
            report = "\n".join(map(str, log.report.findings))
            rows = our_rows(log)
            log.append(TOPIC, 0, make_batch([{"value": b"after:0:0"}], default_ms=1)).result(60)
        assert delta_rows(self.root)[:-1] == rows
        verdict = judge(self.history.acks, {0: rows})
        assert verdict.clean, str(verdict)
        return report, rows

    def data_file(self, version: int) -> Path:
        line = next(line for line in log_path(self.root, version).read_text().splitlines() if line.startswith('{"add"'))
        name = line.partition('"path":"')[2].partition('"')[0]
        return table_path(self.root, 0) / name

    def appends(self) -> list[int]:
        return [version for version in versions(self.root) if b'{"add"' in log_path(self.root, version).read_bytes()]


def _killed(folder: Path, *, stop: bool = False, **changes: object) -> Crashed:
    (folder / "root").mkdir(parents=True)
    settings = NEVER_SYNCED | changes
    process = Process(folder / "root", folder / "history.jsonl", partitions=1, producers=PRODUCERS, settings=settings)
    try:
        for name, *_ in PRODUCERS:
            process.wait_for("ack", count=ACKS, name=name)
        if stop:
            process.stop()
    finally:
        process.kill()
    return Crashed(folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    crashed = _killed(tmp_path_factory.mktemp("damage") / "killed")
    assert len(crashed.appends()) > 6
    return crashed


@pytest.fixture
def crashed(template: Crashed, tmp_path: Path) -> Crashed:
    return template.copy(tmp_path / "killed")


def _cut_inside_a_line(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\n") + 40])


def _cut_at_a_line_end(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"\n", 0, len(data) - 1) + 1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(random.Random(3).randbytes(path.stat().st_size))


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _flip(path: Path, dice: random.Random | None = None) -> None:
    data = bytearray(path.read_bytes())
    dice = dice or random.Random(5)
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


COMMIT_DAMAGES = [_cut_inside_a_line, _cut_at_a_line_end, _empty, _garbage, _zeros, _flip, Path.unlink]
FILE_DAMAGES = [Path.unlink, _halve, _flip, _empty]


def _name(damage: object) -> str:
    return getattr(damage, "__name__", str(damage)).strip("_")


@pytest.mark.parametrize("place", [0, 0.5, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("damage", COMMIT_DAMAGES, ids=_name)
def test_commit_not_yet_synced(crashed: Crashed, damage: Callable[[Path], None], place: float) -> None:
    """I-10, section 2: reported with offsets, rebuilt from the WAL with the same offsets and values."""
    appends = crashed.appends()
    version = appends[-1] if place == -1 else appends[int(len(appends) * place)]
    whole = delta_rows(crashed.root)
    damage(log_path(crashed.root, version))
    report, rows = crashed.recovered()
    assert rows[: len(whole)] == whole
    # The newest version without a trace is what a crash before the commit leaves: nothing to report.
    if not (damage is Path.unlink and place == -1):
        _names_offsets(report, version)


def _names_offsets(report: str, version: int) -> None:
    assert f"version {version}" in report, report
    assert "offsets" in report, report


@pytest.mark.parametrize("damage", FILE_DAMAGES, ids=_name)
def test_data_file_not_yet_synced(crashed: Crashed, damage: Callable[[Path], None]) -> None:
    """I-10: a data file that is missing, cut or flipped is rebuilt from the WAL."""
    appends = crashed.appends()
    version = appends[len(appends) // 2]
    whole = delta_rows(crashed.root)
    damage(crashed.data_file(version))
    report, rows = crashed.recovered()
    assert rows[: len(whole)] == whole
    _names_offsets(report, version)


def test_killed_while_versions_are_removed(crashed: Crashed, start: Start) -> None:
    """R-2: the repair itself is killed three times in a row, at the removal and at the replay."""
    version = crashed.appends()[3]
    whole = delta_rows(crashed.root)
    _empty(log_path(crashed.root, version))
    faults = [["version-removed", 2, "SIGKILL"], ["replayed", 3, "SIGKILL"], ["after-commit", 2, "SIGKILL"]]
    for index in range(counts.RECOVERY_KILLS):
        process = start(
            root=crashed.root, to=crashed.folder / "again.jsonl", settings=NEVER_SYNCED, fault=faults[index % 3]
        )
        wait_until(lambda p=process: not p.alive or p.events("opened"), "killed in recovery")
        process.kill()
        assert index > 2 or not process.events("opened")
    _report, rows = crashed.recovered()
    assert rows[: len(whole)] == whole


def test_without_the_wal_nothing_is_removed(crashed: Crashed) -> None:
    """I-10: the disk of the WAL is lost too: what cannot be rebuilt is refused with its offsets, never thrown away."""
    version = crashed.appends()[2]
    right, before = delta_rows(crashed.root), versions(crashed.root)
    _empty(log_path(crashed.root, version))
    shutil.rmtree(crashed.root / "_sluice" / "wal")
    with LogStore.open(settings_of(str(crashed.root), **NEVER_SYNCED)) as log:
        rows, _ = _scanned(log)
        assert rows == right[: len(rows)]
        with pytest.raises(IntegrityError, match=f"version {version}"):
            log.append(TOPIC, 0, make_batch([{"value": b"x:0:0"}], default_ms=1)).result(60)
        report = "\n".join(map(str, log.report.findings))
    assert "refused" in report
    _names_offsets(report, version)
    assert versions(crashed.root) == before


def test_torn_claim_after_a_leader_that_ended_well(closed: Crashed) -> None:
    """I-10: a claim holds no rows, so a torn one is removed, also when the last leader never opened the partition."""
    right = delta_rows(closed.root)
    torn = versions(closed.root)[-1] + 1
    log_path(closed.root, torn).write_bytes(b"")
    with LogStore.open(settings_of(str(closed.root), **NEVER_SYNCED)) as log:
        assert our_rows(log) == right
        assert f"version {torn}" in "\n".join(map(str, log.report.findings))
        log.append(TOPIC, 0, make_batch([{"value": b"after:0:0"}], default_ms=1)).result(60)
    assert delta_rows(closed.root)[:-1] == right


def test_last_wal_entry_torn(tmp_path: Path) -> None:
    """I-10: a torn last entry was never acknowledged; it is reported, and everything before it is replayed."""
    folder = tmp_path / "torn"
    (folder / "root").mkdir(parents=True)
    settings = NEVER_SYNCED | {"commit_interval_ms": 60_000, "wal_file_bytes": 1 << 20}
    producers = [["bare", "plain", "1", 0]]
    process = Process(
        folder / "root",
        folder / "history.jsonl",
        partitions=1,
        producers=producers,
        settings=settings,
        limit=40,
        depth=1,
    )
    try:
        process.wait_for("ack", count=40)
    finally:
        process.kill()
    crashed = Crashed(folder)
    (wal,) = [path for path in (crashed.root / "_sluice" / "wal").glob("wal-*.log") if any(path.read_bytes())]
    data = wal.read_bytes()
    end = len(data.rstrip(b"\0"))
    wal.write_bytes(data[: end - 20] + bytes(len(data) - end + 20))
    last = crashed.history.events.pop()
    assert (last["kind"], last["number"]) == ("ack", 39)
    report, rows = crashed.recovered()
    assert "tail" in report
    assert len(rows) == last["parts"]["0"]


# --- below the sync point ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed_template(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    crashed = _killed(tmp_path_factory.mktemp("damage") / "closed", stop=True)
    # What the WAL still holds would repair the damage: one more use cuts it.
    with LogStore.open(settings_of(str(crashed.root), **NEVER_SYNCED)) as log:
        log.append("other", 0, make_batch([{"value": b"other:0:0"}], default_ms=1)).result(60)
        log.background.sync_all()
    with LogStore.open(settings_of(str(crashed.root), **NEVER_SYNCED)) as log:
        assert log.runtime.wal is not None
        assert not any(e.ref.topic == TOPIC for entries in log.runtime.wal.recovered.entries.values() for e in entries)
    return crashed


@pytest.fixture
def closed(closed_template: Crashed, tmp_path: Path) -> Crashed:
    return closed_template.copy(tmp_path / "closed")


def test_flipped_bits_in_data_files(closed: Crashed) -> None:
    """I-10: every read returns exactly the right rows or an error that names the offsets."""
    dice = random.Random(11)
    files = sorted(table_path(closed.root, 0).glob("*.parquet"))
    refused = 0
    with LogStore.open(settings_of(str(closed.root), **NEVER_SYNCED)) as log:
        right = our_rows(log)
        for _ in range(counts.CORRUPTIONS):
            file = dice.choice(files)
            saved = file.read_bytes()
            _flip(file, dice)
            try:
                for read in (_scanned, _fetched):
                    rows, error = read(log)
                    refused += error is not None
                    assert rows == right if error is None else rows == right[: len(rows)]
                    assert error is None or "offsets" in error.message, error.message
            finally:
                file.write_bytes(saved)
        assert our_rows(log) == right
    assert refused > counts.CORRUPTIONS


def _scanned(log: LogStore) -> tuple[Rows, CorruptData | None]:
    rows: Rows = []
    try:
        for batch in log.reads(TOPIC, 0).scan(readahead=0):
            rows += zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    except CorruptData as error:
        return rows, error
    return rows, None


def _fetched(log: LogStore) -> tuple[Rows, CorruptData | None]:
    rows: Rows = []
    reads = log.reads(TOPIC, 0)
    try:
        while len(rows) < reads.latest().offset:
            fetched = reads.fetch(len(rows), max_records=50)
            for batch in fetched.rows.batches:
                rows += zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    except CorruptData as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("damage", FILE_DAMAGES, ids=_name)
def test_synced_data_file(closed: Crashed, damage: Callable[[Path], None]) -> None:
    """I-10: what nothing can rebuild is refused by name and offsets; the rows around it are still served."""
    version = closed.appends()[len(closed.appends()) // 2]
    right = delta_rows(closed.root)
    damage(closed.data_file(version))
    with LogStore.open(settings_of(str(closed.root), **NEVER_SYNCED)) as log:
        rows, error = _scanned(log)
        assert error is not None
        assert "offsets" in error.message
        assert rows == right[: len(rows)]
        assert log.reads(TOPIC, 0).fetch(right[-1][0]).rows.count == 1
    assert log_path(closed.root, version).exists(), "a synced version may never be removed"


@pytest.mark.parametrize("clean", [True, False], ids=["after-close", "after-kill"])
@pytest.mark.parametrize("damage", COMMIT_DAMAGES, ids=_name)
def test_synced_commit(closed: Crashed, damage: Callable[[Path], None], clean: bool) -> None:
    """I-10: a damaged commit below the sync point: rows before it are served, produce is refused, nothing goes."""
    if not clean:
        _open_and_die(closed.root)
    appends = closed.appends()
    version = appends[len(appends) // 2]
    right = delta_rows(closed.root)
    before = set(versions(closed.root))
    damage(log_path(closed.root, version))
    damaged = set(versions(closed.root))
    with LogStore.open(settings_of(str(closed.root), **NEVER_SYNCED)) as log:
        rows, _ = _scanned(log)
        assert rows == right[: len(rows)]
        assert 0 < len(rows) < len(right)
        with pytest.raises(IntegrityError, match=f"version {version}"):
            log.reads(TOPIC, 0).fetch(len(rows))
        with pytest.raises(IntegrityError, match=f"version {version}"):
            log.append(TOPIC, 0, make_batch([{"value": b"x:0:0"}], default_ms=1)).result(60)
        assert any(TOPIC in trouble for trouble in log.troubles())
    assert set(versions(closed.root)) >= damaged
    assert before - damaged <= {version}


def _open_and_die(root: Path) -> None:
    """The last leader did not end in order, so the next one looks at everything."""
    process = Process(root, root.parent / "died.jsonl", settings=NEVER_SYNCED)
    try:
        process.wait_for("opened")
    finally:
        process.kill()


@pytest.fixture(autouse=True)
def _no_leftovers(tmp_path: Path) -> Iterator[None]:
    """A copy per case adds up."""
    yield
    for folder in ("killed", "closed"):
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
