"""Files that other engines and killed processes leave in a local partition folder.

Hadoop writes a hidden `.name.crc` beside every file it writes and never misses it when the file goes; our own
put-if-absent leaves a hidden temporary when it is killed between write and link. Object stores have neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sluice.log_store.store import Store

TEMPORARY_AGE_MS = 3_600_000


def sweep_leftovers(store: Store, folder: str, now_ms: int) -> int:
    """Delete sidecars whose file is gone and temporaries that nobody can be writing any more; answers how many."""
    if store.local_path is None:
        return 0
    gone = 0
    for path in hidden_files(store.local_path / folder):
        target = path.with_name(path.name[1:].removesuffix(".crc"))
        orphaned = path.name.endswith(".crc") and not target.exists()
        if orphaned or (_is_others_temporary(path.name) and _age_ms(path, now_ms) > TEMPORARY_AGE_MS):
            path.unlink(missing_ok=True)
            gone += 1
    return gone


def _is_others_temporary(name: str) -> bool:
    """`.<token>-<pid>-<n>.tmp`: one of our own may be about to be linked, whatever the wall clock says of its age."""
    return name.endswith(".tmp") and f"-{os.getpid()}-" not in name


def hidden_files(folder: Path) -> Iterator[Path]:
    """Sidecars and temporaries in the folder of a partition, needed or not."""
    for place in (folder, folder / "_delta_log", folder / "_sluice"):
        try:
            names = [entry.name for entry in os.scandir(place) if entry.name.startswith(".") and entry.is_file()]
        except FileNotFoundError:
            continue
        yield from (place / name for name in names)


def _age_ms(path: Path, now_ms: int) -> int:
    try:
        return now_ms - path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
