"""From the files of a WAL to what is in it: entries per partition, sync points, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_files import log_files, parked_files
from sluice.log_store.wal_ledger import Ledger, LiveFile
from sluice.log_store.wal_scan import Damage, EntryReader, FileScan, scan_file
from sluice.log_store.wal_values import (
    ParkedFile,
    PartitionKey,
    Release,
    Severity,
    SyncPoint,
    WalEntryRef,
    WalFinding,
    WalScan,
    key_of,
)

PARKED_SEQ = 0
"""Files beside the shared log are written once and never recycled: they need no number of their own."""


@dataclass(slots=True)
class Recovered:
    files: list[FileScan]
    scan: WalScan
    points: dict[PartitionKey, tuple[PartitionRef, SyncPoint]] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        return 1 + max((file.highest_number for file in self.files), default=-1)

    @property
    def next_seq(self) -> int:
        return 1 + max((file.seq for file in self.files), default=0)

    @property
    def previous(self) -> tuple[int, int]:
        """The file written last, and up to where it holds what it should: what a crash tore is never called lost."""
        last = max((file for file in self.files if not file.empty), key=lambda file: file.seq, default=None)
        if last is None:
            return (0, 0)
        torn = [f.position for f in self.scan.findings if f.file == last.name and f.severity != "middle"]
        return (last.seq, min([last.end, *torn]))

    def ledger(self) -> tuple[Ledger, list[FileScan]]:
        """What must be kept, and files that hold nothing: prepared and never used, or torn at their very start."""
        ledger = Ledger()
        ledger.points.update(self.points)
        for release in self.releases:
            ledger.remember(release)
        lost = {finding.file for finding in self.scan.findings if finding.severity == "middle"}
        unused = [file for file in self.files if file.empty and file.name not in lost]
        for file in self.files:
            if file not in unused:
                live = ledger.files[file.seq] = LiveFile(file.seq, file.name, file.size, borrowed=file.borrowed)
                for entry in file.entries:
                    live.add(key_of(entry.ref), entry.base_offset, entry.end_offset)
        return ledger, unused


def recover(directory: Path, uuid: bytes) -> Recovered:
    files = _scan_files(directory, uuid)
    recovered = Recovered(files, WalScan())
    for file in files:
        for control in file.controls:
            _apply(recovered, control)
    recovered.scan.sync_points.update({key: point for key, (_ref, point) in recovered.points.items()})
    for file, proven in zip(files, _proven_ends(files), strict=True):
        recovered.scan.findings.extend(_findings(file, proven))
    with closing(EntryReader(directory, uuid)) as reader:
        for entry in _unreleased(files, recovered.releases):
            _add(recovered.scan, entry, reader.read)
    for path in parked_files(directory):
        parked, findings = read_side_file(path, uuid)
        recovered.scan.parked.append(parked)
        recovered.scan.findings.extend(findings)
    return recovered


def _scan_files(directory: Path, uuid: bytes) -> list[FileScan]:
    files: list[FileScan] = []
    refs: dict[int, PartitionRef] = {}
    paths = log_files(directory)
    for seq, path in paths.items():
        files.append(scan_file(path, path.name, uuid, seq, refs))
        refs.update(files[-1].refs)
    return [scan_file(paths[f.seq], f.name, uuid, f.seq, refs) if f.unresolved else f for f in files]


def _apply(recovered: Recovered, control: object) -> None:
    if isinstance(control, Release):
        recovered.releases.append(control)
        if control.forget:
            recovered.points.pop(key_of(control.ref), None)
    elif isinstance(control, dict):
        recovered.points.update({key_of(ref): (ref, point) for ref, point in control.items()})


def _proven_ends(files: list[FileScan]) -> list[int]:
    """Up to where each file is known to have been fsynced, by its own later groups or by the file that followed it."""
    by_next = {file.header.previous_seq: file.header.previous_end for file in files if file.header}
    return [max(file.proven, by_next.get(file.seq, 0)) for file in files]


def _findings(file: FileScan, proven: int) -> Iterable[WalFinding]:
    damages = file.damages
    if file.end < proven and not any(damage.position >= file.end for damage in damages):
        damages = [*damages, _cut_short(file, f"entries up to byte {proven} are missing")]
    for damage in damages:
        severity: Severity = "middle" if damage.position < proven else "group" if damage.position < file.end else "tail"
        yield WalFinding(file.name, damage.position, severity, damage.what, damage.before, damage.after)


def _cut_short(file: FileScan, what: str) -> Damage:
    return Damage(file.end, what, file.entries[-1] if file.entries else None)


def _unreleased(files: list[FileScan], releases: list[Release]) -> Iterable[WalEntryRef]:
    by_key: dict[PartitionKey, list[Release]] = {}
    for release in releases:
        by_key.setdefault(key_of(release.ref), []).append(release)
    for file in files:
        if by_key:
            file.entries = [e for e in file.entries if not any(r.covers(e) for r in by_key.get(key_of(e.ref), ()))]
        yield from file.entries


def _add(scan: WalScan, entry: WalEntryRef, read: Callable[[WalEntryRef], object]) -> None:
    known = scan.entries.setdefault(key_of(entry.ref), [])
    if known and entry.base_offset < known[-1].end_offset:
        for twin in reversed(known):
            if (twin.base_offset, twin.epoch) != (entry.base_offset, entry.epoch):
                continue
            if read(twin) == read(entry):
                return
            what = "another batch with the same offsets and epoch stands further up"
            scan.findings.append(WalFinding(entry.file, entry.position, "middle", what, twin, entry))
            break
    known.append(entry)


def read_side_file(path: Path, uuid: bytes) -> tuple[ParkedFile, list[WalFinding]]:
    file = scan_file(path, str(path.relative_to(path.parent.parent)), uuid, PARKED_SEQ, {})
    if not file.signed and not file.damages:
        file.damages.append(_cut_short(file, "the end of the file is missing"))
    parked = ParkedFile(path, file.entries[0].ref if file.entries else None, file.entries)
    # It was fsynced before it got its name: all damage is loss.
    return parked, [replace(finding, severity="middle") for finding in _findings(file, 0)]
