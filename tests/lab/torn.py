"""Files as a crash of the machine leaves them: only bytes that nobody was told are on disk are touched.

After a kill the page cache keeps every byte, so a torn write has to be made. Lawful are two places:

- Behind the last whole entry of a write-ahead log. A group of entries is acknowledged only after its fsync, so whatever
  stands behind it is a write that was on its way.
- The newest commit of a partition, and the data file that it adds, if it is newer than the version that the log's last
  sync point names. Its records are in the fsynced write-ahead log (ADR 0002), whoever was told that they are committed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_scan import FileScan, scan_file
from sluice.log_store.wal_values import SyncPoint


def _scans(wal: Path) -> Iterator[tuple[Path, FileScan]]:
    for folder in sorted(wal.parent.glob(f"{wal.name}*")):
        if not (folder / "meta.json").exists():
            continue
        uuid = bytes.fromhex(json.loads((folder / "meta.json").read_bytes())["uuid"])
        refs: dict[int, PartitionRef] = {}
        for path in sorted(folder.glob("wal-*.log")):
            scan = scan_file(path, path.name, uuid, int(path.name[4:24]), refs)
            refs |= scan.refs
            yield path, scan


def tear_wal(wal: Path, count: int, seed: int) -> str:
    """Half a write behind the end of the newest file of the log."""
    begun = [(path, scan) for path, scan in _scans(wal) if scan.end]
    if not begun:
        return "nothing was written yet"
    path, scan = begun[-1]
    garbage = random.Random(seed).randbytes(min(count, scan.size - scan.end))
    with path.open("r+b") as file:
        file.seek(scan.end)
        file.write(garbage)
    return f"{len(garbage)} bytes at {scan.end} of {path.name}"


def tear_commit(root: Path, wal: Path, how: str, seed: int, what: str = "commit") -> str:
    """The newest commit of a partition that nothing says is on disk, or the data file that it adds."""
    synced: dict[tuple[str, int], tuple[PartitionRef, SyncPoint]] = {}
    for _, scan in _scans(wal):
        for control in scan.controls:
            for ref, point in control.items() if isinstance(control, Mapping) else ():
                known = synced.get((ref.topic_id, ref.partition))
                if known is None or known[1].version < point.version:
                    synced[ref.topic_id, ref.partition] = (ref, point)
    points = list(synced.values())
    for ref, point in random.Random(seed).sample(points, len(points)):
        commits = sorted((root / ref.folder / "_delta_log").glob("*.json"))
        newest = commits[-1] if commits else None
        if newest is None or int(newest.stem) <= point.version or b'"kind":"append"' not in newest.read_bytes():
            continue
        torn = newest if what == "commit" else root / ref.folder / _added(newest.read_bytes())
        torn.write_bytes(_torn(torn.read_bytes(), how))
        return f"{ref.topic}-{ref.partition}: {what} of version {int(newest.stem)}, synced was {point.version}"
    return "everything was synced"


def _added(commit: bytes) -> str:
    return next(str(action["add"]["path"]) for action in map(json.loads, commit.splitlines()) if "add" in action)


def _torn(data: bytes, how: str) -> bytes:
    match how:
        case "half":
            return data[: len(data) // 2]
        case "line":
            return data[: data.rfind(b"\n", 0, len(data) - 1) + 1]
        case "garbage":
            return random.Random(len(data)).randbytes(len(data))
        case "zeros":
            return bytes(len(data))
        case _:
            return b""
