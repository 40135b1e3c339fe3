"""Is a partition, as its log describes it, what docs/protocol.md promises? Pure checks on state and file facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sluice.jobs.verify_commits import DATA_NAME, check_crossings
from sluice.jobs.verify_facts import FileFacts
from sluice.jobs.verify_findings import Finding, notice
from sluice.log_store.compaction_tombstones import TAG, spans_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.store import Listed
from sluice.log_store.sweep import DATA_SUFFIX
from sluice.log_store.values import PartitionRef

MOST_NAMED = 3
"""Files that a notice names; the others are counted."""


# --- the state at one version ------------------------------------------------------------------


def check_state(state: PartitionState) -> Iterator[Finding]:
    """Order, density, bounds and segments of the live files."""
    version = state.version
    if not 0 <= state.log_start <= state.end:
        text = f"the log start is {state.log_start}, the high watermark {state.end}"
        yield Finding("I-1", text, offset=state.log_start, version=version)
    yield from _order(state)
    yield from _density(state)
    yield from _below_start(state)
    yield from check_crossings(state.files, state.rolls, version)
    if any(roll <= previous for previous, roll in zip(state.rolls, state.rolls[1:], strict=False)):
        yield Finding("R-10", f"the segment boundaries are out of order: {state.rolls[:10]}", version=version)
    for file in state.files:
        if not DATA_NAME.fullmatch(file.path):
            yield Finding("I-4", "its name is not that of a data file", version=version, file=file.path)
    if not 0 <= state.first_dirty <= state.end:
        text = f"the part that was never compacted begins at {state.first_dirty}, the log ends at {state.end}"
        yield Finding("R-7", text, offset=state.first_dirty, version=version)


def _order(state: PartitionState) -> Iterator[Finding]:
    for before, file in zip(state.files, state.files[1:], strict=False):
        if file.base_offset < before.end_offset:
            text = f"its offsets from {file.base_offset} on are also in {before.path}"
            yield Finding("I-1", text, offset=file.base_offset, version=state.version, file=file.path)
    for file in state.files:
        if file.records <= 0 or file.end_offset - file.base_offset < file.records:
            text = f"its log says {file.records} rows for offsets {file.base_offset}..{file.end_offset - 1}"
            yield Finding("I-12", text, offset=file.base_offset, version=state.version, file=file.path)
    if state.files and state.files[-1].end_offset > state.end:
        last = state.files[-1]
        text = f"it goes up to {last.end_offset - 1}, past the high watermark {state.end}"
        yield Finding("I-1", text, offset=state.end, version=state.version, file=last.path)


def _density(state: PartitionState) -> Iterator[Finding]:
    """Only key compaction leaves gaps, below where the dirty part begins, here or at a mirror's source (I-1)."""
    at = max(state.log_start, state.gaps_below, state.first_dirty if state.last_cleaning >= 0 else 0)
    for file in state.files:
        if file.end_offset <= at:
            continue
        if file.base_offset > at:
            text = f"no file holds the offsets {at}..{file.base_offset - 1}"
            yield Finding("I-1", text, offset=at, version=state.version)
        if file.base_offset >= at and file.records != file.end_offset - file.base_offset:
            text = f"it holds {file.records} rows for the offsets {file.base_offset}..{file.end_offset - 1}"
            yield Finding("I-1", text, offset=file.base_offset, version=state.version, file=file.path)
        at = file.end_offset
    if at < state.end:
        text = f"no file holds the offsets {at}..{state.end - 1}"
        yield Finding("I-1", text, offset=at, version=state.version)


def _below_start(state: PartitionState) -> Iterator[Finding]:
    for file in state.files:
        if file.end_offset <= state.log_start:
            text = f"it is live and ends below the log start {state.log_start}: other engines still read it"
            yield Finding("R-11", text, offset=file.base_offset, version=state.version, file=file.path)


def check_identity(state: PartitionState, ref: PartitionRef) -> Iterator[Finding]:
    identity = state.identity
    if identity is None:
        return
    found = (identity.topic, identity.topic_id, identity.partition)
    if found != (ref.topic, ref.topic_id, ref.partition):
        text = f"the table says it is {found[0]}-{found[2]} of topic id {found[1]}, the catalog {ref.topic_id}"
        yield Finding("R-8", text, version=state.version)


# --- state snapshots and checkpoints against a replay ------------------------------------------


def check_snapshot(stored: PartitionState, replayed: PartitionState) -> Iterator[Finding]:
    """A pair of state snapshot and checkpoint against the same version, replayed from older commits (R-5, I-6)."""
    kept, rebuilt = _snapshot_body(stored), _snapshot_body(replayed)
    kept_producers, rebuilt_producers = kept.pop("producers"), rebuilt.pop("producers")
    kept_sinks, rebuilt_sinks = kept.pop("sinks"), rebuilt.pop("sinks")
    for field, value in kept.items():
        if value != rebuilt[field]:
            what = "the Delta checkpoint" if field in ("files", "checkpoint_crc") else "the state snapshot"
            text = f"{what} disagrees with the log about {field}: {_short(value)} instead of {_short(rebuilt[field])}"
            yield Finding("R-5", text, version=stored.version)
    yield from _producers(kept_producers, rebuilt_producers, stored.version)
    for query, entry in kept_sinks.items():
        if rebuilt_sinks.get(query) != entry:
            text = f"the state snapshot has another batch of Spark query {query} than the log"
            yield Finding("R-5", text, version=stored.version)


def _snapshot_body(state: PartitionState) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(state.to_snapshot().partition(b"\n")[2])
    return body


def _producers(kept: list[Any], rebuilt: list[Any], version: int) -> Iterator[Finding]:
    """A snapshot forgets idle producers, and what they sent before they were forgotten; it invents none."""
    known = {row[0]: row for row in rebuilt}
    for producer_id, epoch, last_ms, entries in kept:
        row = known.get(producer_id)
        if row is None or (epoch, last_ms) != (row[1], row[2]) or entries != row[3][-len(entries) :]:
            text = f"the state snapshot has another window of producer {producer_id} than the log"
            yield Finding("R-5", text, version=version)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# --- data files ----------------------------------------------------------------------------------


def check_listed(file: DataFile, listed: Listed | None) -> Iterator[Finding]:
    """What a listing tells without opening the file."""
    if listed is None:
        text = f"it is live and missing: the offsets {file.base_offset}..{file.end_offset - 1} cannot be read"
        yield Finding("I-9", text, offset=file.base_offset, file=file.path)
    elif listed.size != file.size:
        text = f"it has {listed.size} bytes, its log says {file.size}"
        yield Finding("I-10", text, offset=file.base_offset, file=file.path)


def check_file(file: DataFile, facts: FileFacts) -> Iterator[Finding]:
    """What the log says about a file against what was read from it."""
    listed = None if facts.missing else Listed(file.path, facts.size, 0)
    yield from check_listed(file, listed)
    if facts.missing:
        return
    at = {"offset": file.base_offset, "file": file.path}
    if file.file_crc is None or file.footer_crc is None:
        yield Finding("I-10", "its log has no checksums of it", **at)  # type: ignore[arg-type]
    elif facts.file_crc != file.file_crc:
        what = "its footer" if facts.footer_crc != file.footer_crc else "the file"
        text = f"{what} fails its checksum: {facts.file_crc:08x} instead of {file.file_crc:08x}"
        yield Finding("I-10", text, **at)  # type: ignore[arg-type]
    if facts.damage:
        yield Finding("I-10", facts.damage, **at)  # type: ignore[arg-type]
        return
    yield from _statistics(file, facts)
    if facts.disorder is not None:
        text = f"its rows are not in offset order: {facts.disorder} comes too late"
        yield Finding("I-1", text, offset=facts.disorder, file=file.path)
    if facts.bad_times:
        text = f"{facts.bad_times} timestamps are no whole milliseconds between 1970 and 9999"
        yield Finding("section 2", text, **at)  # type: ignore[arg-type]


def _statistics(file: DataFile, facts: FileFacts) -> Iterator[Finding]:
    measured = {
        "numRecords": (file.records, facts.sums.rows),
        "the smallest offset": (file.base_offset, facts.low_offset),
        "the largest offset": (file.end_offset - 1, facts.high_offset),
        "the smallest timestamp": (file.min_ms, facts.low_us // 1000),
        "the largest timestamp": (file.max_ms, facts.high_us // 1000),
        "nullCount of offset": (0, facts.null_offsets),
        "nullCount of timestamp": (0, facts.null_timestamps),
    }
    for name, (said, found) in measured.items():
        if said != found:
            text = f"its statistics say {name} is {said}, the rows say {found}"
            yield Finding("I-12", text, offset=file.base_offset, file=file.path)


def check_facts(files: Sequence[DataFile], facts: Mapping[str, FileFacts]) -> Iterator[Finding]:
    for file in files:
        if (found := facts.get(file.path)) is not None:
            yield from check_file(file, found)


def check_tombstones(state: PartitionState, facts: Mapping[str, FileFacts]) -> Iterator[Finding]:
    """A tombstone that a cleaning has met has its horizon in the file's tag (R-5)."""
    for file in state.files:
        at = {"offset": file.base_offset, "version": state.version, "file": file.path}
        spans = spans_of(file)
        if TAG in file.tags and not spans:
            yield Finding("R-5", f"its tombstone horizons cannot be read: {file.tags[TAG][:100]}", **at)  # type: ignore[arg-type]
        elif any(span.start < file.base_offset or span.end > file.end_offset for span in spans):
            yield Finding("R-5", "its tombstone horizons are of offsets outside it", **at)  # type: ignore[arg-type]
        met = state.last_cleaning >= 0 and file.end_offset <= state.first_dirty
        held = facts[file.path].sums.null_values if file.path in facts else 0
        if met and held and TAG not in file.tags:
            text = f"{held} tombstones were met by a compaction and have no delete horizon: they would stay for ever"
            yield Finding("R-5", text, **at)  # type: ignore[arg-type]


# --- the folder ----------------------------------------------------------------------------------


def check_folder(state: PartitionState, listing: Iterable[Listed]) -> Iterator[Finding]:
    """What lies beside the live files: nothing wrong, but it takes room."""
    live = {file.path for file in state.files}
    others = [item.name for item in listing if item.name not in live]
    unnamed = [name for name in others if name.endswith(DATA_SUFFIX) and name not in state.removed]
    waiting = [name for name in others if name in state.removed]
    strange = [name for name in others if not name.endswith(DATA_SUFFIX)]
    for names, text in (
        (unnamed, "data files that no commit names: of a commit on its way, or orphans"),
        (waiting, "removed files that wait for their deletion"),
        (strange, "files that Sluice does not know"),
    ):
        if names:
            yield notice("R-6", f"{len(names)} {text}: {_named(names)}")


def _named(names: Sequence[str]) -> str:
    more = "" if len(names) <= MOST_NAMED else ", …"
    return ", ".join(sorted(names)[:MOST_NAMED]) + more
