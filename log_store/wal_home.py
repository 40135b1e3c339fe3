"""Which WAL folders a process opens: its own, and those that dead processes left behind (R-1, R-2).

A process that took the leadership by force finds the WAL locked by the one it replaced. It uses the next folder,
`wal-1`, `wal-2`, …; whoever opens the cluster later replays every folder that nobody holds.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sluice.conf.settings import Settings
from sluice.log_store.clock import Clock
from sluice.log_store.errors import StorageError
from sluice.log_store.store import Store
from sluice.log_store.wal import Wal
from sluice.log_store.wal_values import WalLocked

MOST_WALS = 16


def open_wals(store: Store, settings: Settings, clock: Clock) -> list[Wal]:
    """This process' own WAL first, then those that nobody holds. None at all on a memory root."""
    home = _home(store, settings)
    opened: list[Wal] = []
    try:
        for folder in _folders(home) if home is not None else ():
            if opened and not folder.exists():
                break
            with suppress(WalLocked):
                opened.append(_open(folder, settings, clock))
    except BaseException:
        for wal in opened:
            wal.close()
        raise
    if home is not None and not opened:
        raise StorageError(f"all {MOST_WALS} WAL folders beside {home} are locked by other processes")
    return opened


def _open(folder: Path, settings: Settings, clock: Clock) -> Wal:
    return Wal.open(
        folder,
        max_bytes=settings.wal.max_bytes,
        file_bytes=settings.wal.file_bytes,
        fsync=settings.storage.fsync,
        clock=clock,
    )


def _home(store: Store, settings: Settings) -> Path | None:
    if settings.wal.dir:
        return Path(settings.wal.dir)
    if store.local_path is not None:
        return store.local_path / "_sluice" / "wal"
    if store.durable_puts:
        raise StorageError("wal.dir must name a local folder when storage.root is an object store: acks=1 needs it")
    return None


def _folders(home: Path) -> list[Path]:
    return [home, *(home.with_name(f"{home.name}-{number}") for number in range(1, MOST_WALS))]
