"""A disk that refuses: nothing is withdrawn, nothing is written twice to a file that failed, order is kept."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.log_store.clock import ManualClock
from sluice.log_store.wal import SyncPoint, WalClosed
from tests.support.wal import (
    FILE_BYTES,
    REF,
    WAIT_S,
    Acks,
    append,
    bases,
    batch,
    entries,
    eventually,
    files,
    numbered,
    open_wal,
    read_all,
    ref,
    sync,
)


class Broken:
    """An os function that fails while told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, times: int | None) -> None:
        self._real: Callable[..., object] = getattr(os, name)
        self._number = number
        self._times = times
        self.failed: list[str] = []
        self.after_failure: list[str] = []
        self.called = threading.Condition()
        monkeypatch.setattr(os, name, self)

    def __call__(self, fd: int, *rest: object) -> object:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        with self.called:
            fails = self._times is None or len(self.failed) < self._times
            if name in self.failed:
                self.after_failure.append(name)
            if fails:
                self.failed.append(name)
            self.called.notify_all()
        if fails:
            raise OSError(self._number, os.strerror(self._number))
        return self._real(fd, *rest)

    def repair(self) -> None:
        with self.called:
            self._times = len(self.failed)

    def wait(self, failures: int) -> None:
        with self.called:
            assert self.called.wait_for(lambda: len(self.failed) >= failures, WAIT_S)


@pytest.mark.parametrize(
    ("name", "number"), [("fdatasync", errno.EIO), ("pwritev", errno.ENOSPC), ("pwritev", errno.EIO)]
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_failed_group_is_written_again_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, times: int
) -> None:
    heard: list[BaseException] = []
    with open_wal(tmp_path, fsync=True, on_failure=heard.append) as wal:
        append(wal, *numbered(3))
        first = files(tmp_path)[0]
        broken = Broken(monkeypatch, name, number, times)
        acks = Acks()
        for base in range(3, 10):
            wal.append(batch(base), acks.expect(base))
        acks.wait()
        assert acks.order == list(range(3, 10))
        assert set(acks.errors) == {None}
        assert wal.stalled_since is None
        assert broken.after_failure == []
        assert [type(error) for error in heard] == [OSError]
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == list(numbered(10))
        assert [e.file == first.name for e in entries(wal)][:3] == [True] * 3
        assert "middle" not in [f.severity for f in wal.recovered.findings]
        sync(wal, 10)
    with open_wal(tmp_path) as wal:
        assert bases(wal) in ([], list(range(10)))


def test_a_file_that_failed_is_not_recycled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_wal(tmp_path, fsync=True) as wal:
        append(wal, batch(0))
        bad = files(tmp_path)[0].stem.removeprefix("wal-")
        Broken(monkeypatch, "fdatasync", errno.EIO, 1)
        append(wal, batch(1))
        sync(wal, 2)
    assert [path.name for path in tmp_path.iterdir() if bad in path.name] == []


def test_callers_wait_while_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, acks = ManualClock(boottime=500.0), Acks()
    with open_wal(tmp_path, fsync=True, clock=clock) as wal:
        append(wal, batch(0))
        broken = Broken(monkeypatch, "fdatasync", errno.EIO, None)
        wal.append(batch(1), acks.expect(1))
        broken.wait(3)
        clock.advance(7)
        wal.append(batch(2), acks.expect(2))
        assert wal.stalled_since == 500.0
        assert not wal.has_room(1)
        assert acks.order == []
        broken.repair()
        acks.wait()
        assert acks.errors == [None, None]
        assert wal.stalled_since is None
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == list(numbered(3))


def test_close_gives_up_on_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acks = Acks()
    wal = open_wal(tmp_path, fsync=True)
    append(wal, batch(0))
    broken = Broken(monkeypatch, "fdatasync", errno.EIO, None)
    for base in (1, 2):
        wal.append(batch(base), acks.expect(base))
    broken.wait(2)
    wal.close()
    assert acks.order == [1, 2]
    assert [type(error) for error in acks.errors] == [WalClosed, WalClosed]
    monkeypatch.undo()
    with open_wal(tmp_path) as wal:
        assert bases(wal)[0] == 0
        assert bases(wal) == list(range(len(bases(wal))))


@pytest.mark.parametrize("size", [0, 700])
def test_on_a_full_disk_a_sync_point_frees_the_space_for_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    acks = Acks()
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(40))
        end = 40
        broken = Broken(monkeypatch, "pwrite", errno.ENOSPC, None)  # no new file can be made; old ones can be written
        while wal.stalled_since is None:
            wal.append(batch(end, size=size), acks.expect(end))
            end += 1
            # One at a time: what waits in the end must fit into the few files that are freed.
            assert eventually(lambda: len(acks.order) == end - 40 or wal.stalled_since is not None)  # noqa: B023
        broken.wait(2)
        assert not wal.has_room(700)
        covered = 40 + len(acks.order)
        assert covered < end
        wal.note_synced({REF: SyncPoint(1, covered)}, wait=False)
        acks.wait()
        assert wal.stalled_since is None
        broken.repair()
    with open_wal(tmp_path) as wal:
        assert bases(wal)[-1] == end - 1
        assert set(range(covered, end)) <= set(bases(wal))


def test_a_full_disk_is_known_before_an_offset_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with open_wal(tmp_path, clock=clock) as wal:
        append(wal, batch(0))
        assert eventually(lambda: len(files(tmp_path)) == 2)
        broken = Broken(monkeypatch, "pwrite", errno.ENOSPC, None)
        # The file prepared ahead is still there; once it is in use, the next one cannot be made.
        append(wal, *(batch(base, size=700) for base in range(1, 7)))
        broken.wait(1)
        assert eventually(lambda: not wal.has_room(10 * FILE_BYTES))
        assert wal.has_room(100)
        assert wal.stalled_since is None
        broken.repair()
        clock.advance(2)
        assert eventually(lambda: wal.has_room(10 * FILE_BYTES))


def test_a_real_limit_on_file_sizes_stalls_and_is_survived(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import resource, sys, threading
        from pathlib import Path
        from tests.support.wal import *

        acks = Acks()
        wal = open_wal(Path(sys.argv[1]), fsync=True)
        append(wal, batch(0))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES // 2, hard))
        for base in range(1, 60):
            wal.append(batch(base), acks.expect(base))
        while wal.stalled_since is None:
            threading.Event().wait(0.01)
        print("stalled", len(acks.order) < 59)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        acks.wait()
        print(acks.order == list(range(1, 60)), set(acks.errors))
        wal.close()
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=_env(),
        check=False,
    )
    assert run.stdout.split("\n")[:2] == ["stalled True", "True {None}"], run.stderr
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == list(numbered(60))


def _env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_release_survives_a_failed_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ref(1)
    with open_wal(tmp_path, fsync=True) as wal:
        append(wal, batch(0), batch(0, other))
        Broken(monkeypatch, "fdatasync", errno.EIO, 2)
        wal.release(REF)
        append(wal, batch(0, epoch=2))
    with open_wal(tmp_path) as wal:
        assert [(e.epoch, e.base_offset) for e in entries(wal)] == [(2, 0)]
        assert bases(wal, other) == [0]
