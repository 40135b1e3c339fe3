"""Maintenance plans and the rules that a leader checks before it commits one (R-7). Pure.

A plan is made outside, from a version that its maker read; between then and now the partition may have moved. One
plan is one commit: it applies whole or is refused with what changed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.segments import ActiveSegment

_PLAIN_NAME = re.compile(r"[0-9]{20}-[0-9]+-[0-9a-z]+\.parquet")


class PlanKind(StrEnum):
    MERGE = "merge"
    """Same rows in fewer files."""
    TRIM = "trim"
    """The file at the log start, rewritten without the rows below it (R-11)."""
    COMPACT = "compact"
    """Fewer rows by key compaction."""
    RETENTION = "retention"
    """Whole files below a new log start."""
    DELETE_RECORDS = "delete_records"
    MIRROR = "mirror"
    """Files of another cluster's partition at or past the end of this one, with its gaps and its log start."""


ROWS_UNCHANGED = frozenset({PlanKind.MERGE})
"""Kinds that readers of the table need not notice: `dataChange` is false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    plan_id: str
    """Makes a repeat harmless: a plan that was committed already answers its version."""
    kind: PlanKind
    reason: str
    base_version: int
    removes: tuple[str, ...] = ()
    adds: tuple[DataFile, ...] = ()
    log_start: int | None = None
    first_dirty: int | None = None
    """After a key compaction: where the part that was never cleaned begins."""
    continues_at: int | None = None
    """Of a mirror: the end of the log that its files continue. A repeat finds another one and adds nothing twice."""
    end: int | None = None
    """Of a mirror: the end of the log afterwards; the source may have removed the last rows before it."""
    rolls: tuple[int, ...] = ()
    """Of a mirror: where segments of the source begin in what is added (R-10)."""
    empties_log: bool = False
    """Retention takes the active segment too: refused once records were appended to it, else a new one begins at the
    log end."""


def check_plan(state: PartitionState, plan: Plan) -> list[DataFile]:
    """The files to remove, if the plan fits the partition as it is; PlanRefused otherwise."""
    if plan.base_version > state.version:
        raise PlanRefused(f"plan {plan.plan_id} starts from version {plan.base_version}, the log is at {state.version}")
    removed = _live(state, plan)
    _check_names(state, plan)
    if plan.kind is not PlanKind.MIRROR:
        if plan.end is not None or plan.continues_at is not None or plan.rolls:
            raise PlanRefused(f"{plan.kind} {plan.plan_id} may not move the end of the log: only a mirror does")
        _check_log_start(state, plan)
        _check_ranges(state, plan, removed)
    _CHECKS[plan.kind](state, plan, removed)
    return removed


def _live(state: PartitionState, plan: Plan) -> list[DataFile]:
    if len(set(plan.removes)) != len(plan.removes):
        raise PlanRefused(f"plan {plan.plan_id} removes a file twice")
    wanted = set(plan.removes)
    removed = [file for file in state.files if file.path in wanted]
    if len(removed) != len(wanted):
        gone = sorted(wanted - {file.path for file in removed})
        raise PlanRefused(f"plan {plan.plan_id} removes files that are not live any more: {', '.join(gone)}", gone=gone)
    return removed


def check_plain_names(plan: Plan) -> None:
    """Before storage is asked for any of them: a name with slashes would lead out of the partition's folder."""
    for file in plan.adds:
        if not _PLAIN_NAME.fullmatch(file.path):
            raise PlanRefused(
                f"plan {plan.plan_id} adds {file.path[:200]!r}, which is not a plain data file name (I-4)", field="path"
            )


def _check_names(state: PartitionState, plan: Plan) -> None:
    check_plain_names(plan)
    used = {file.path for file in state.files} if plan.adds else set()
    for file in plan.adds:
        if file.path in used or file.path in state.removed:
            raise PlanRefused(f"plan {plan.plan_id} adds {file.path!r}, a name that was used before (I-4)")
        used.add(file.path)


def _check_log_start(state: PartitionState, plan: Plan) -> None:
    if plan.log_start is not None and not state.log_start <= plan.log_start <= state.end:
        raise PlanRefused(
            f"plan {plan.plan_id} moves the log start to {plan.log_start}; "
            f"it may only rise from {state.log_start} to at most {state.end}"
        )


def _check_ranges(state: PartitionState, plan: Plan, removed: Sequence[DataFile]) -> None:
    runs = _runs(state, removed)
    end = -1
    for file in sorted(plan.adds, key=lambda f: f.base_offset):
        _check_rows(file)
        if file.base_offset < end:
            raise PlanRefused(f"plan {plan.plan_id} adds files whose offsets overlap at {file.base_offset}")
        end = file.end_offset
        if not any(low <= file.base_offset and file.end_offset <= high for low, high in runs):
            raise PlanRefused(f"{file.path} lies outside the files that plan {plan.plan_id} removes")
        _check_crossing(file, state.rolls)


def _check_rows(file: DataFile) -> None:
    if file.records <= 0 or file.end_offset - file.base_offset < file.records:
        raise PlanRefused(f"{file.path} says {file.records} rows in {file.base_offset}..{file.end_offset - 1}")


def _check_crossing(file: DataFile, rolls: Sequence[int]) -> None:
    roll = bisect_right(rolls, file.base_offset)
    if roll < len(rolls) and rolls[roll] < file.end_offset:
        raise PlanRefused(f"{file.path} crosses the segment boundary at {rolls[roll]} (R-10)")


def _runs(state: PartitionState, removed: Sequence[DataFile]) -> list[tuple[int, int]]:
    """Offset hulls of removed files that are neighbours in the log; gaps of earlier cleanings lie inside."""
    positions = {file.path: index for index, file in enumerate(state.files)}
    runs: list[tuple[int, int]] = []
    previous = -2
    for file in removed:
        position = positions[file.path]
        if position == previous + 1:
            runs[-1] = (runs[-1][0], file.end_offset)
        else:
            runs.append((file.base_offset, file.end_offset))
        previous = position
    return runs


def _rows(files: Sequence[DataFile]) -> int:
    return sum(file.records for file in files)


def _check_merge(_state: PartitionState, plan: Plan, removed: Sequence[DataFile]) -> None:
    if not removed or _rows(plan.adds) != _rows(removed):
        raise PlanRefused(f"merge {plan.plan_id} turns {_rows(removed)} rows into {_rows(plan.adds)}")


def _check_trim(state: PartitionState, plan: Plan, removed: Sequence[DataFile]) -> None:
    if len(removed) != 1 or len(plan.adds) != 1:
        raise PlanRefused(f"trim {plan.plan_id} must replace one file by one")
    old, new = removed[0], plan.adds[0]
    if new.base_offset < state.log_start or new.end_offset != old.end_offset:
        raise PlanRefused(f"trim {plan.plan_id} must keep exactly the rows from the log start {state.log_start} on")
    dense = old.records == old.end_offset - old.base_offset
    if dense and new.records != old.end_offset - max(state.log_start, old.base_offset):
        raise PlanRefused(f"trim {plan.plan_id} drops rows at or above the log start {state.log_start}")


def _check_compact(state: PartitionState, plan: Plan, removed: Sequence[DataFile]) -> None:
    if plan.base_version < state.last_cleaning:
        raise PlanRefused(
            f"compaction {plan.plan_id} started at version {plan.base_version}, "
            f"before the last cleaning at {state.last_cleaning}"
        )
    if _rows(plan.adds) > _rows(removed):
        raise PlanRefused(f"compaction {plan.plan_id} turns {_rows(removed)} rows into {_rows(plan.adds)}")
    if plan.first_dirty is None or not state.first_dirty <= plan.first_dirty <= state.end:
        raise PlanRefused(
            f"compaction {plan.plan_id} must say where the dirty part begins, {state.first_dirty} or later"
        )
    if late := [file.path for file in removed if file.end_offset > plan.first_dirty]:
        raise PlanRefused(f"compaction {plan.plan_id} cleans up to {plan.first_dirty} and removes {late[0]} beyond it")


def _check_retention(state: PartitionState, plan: Plan, removed: Sequence[DataFile]) -> None:
    start = state.log_start if plan.log_start is None else plan.log_start
    if plan.adds:
        raise PlanRefused(f"{plan.kind} {plan.plan_id} may not add files")
    if plan.empties_log and start != state.end:
        raise PlanRefused(f"{plan.kind} {plan.plan_id} empties the log up to {start}, which now ends at {state.end}")
    if late := [file.path for file in removed if file.end_offset > start]:
        raise PlanRefused(f"{plan.kind} {plan.plan_id} removes rows at or above its log start {start}: {late[0]}")


def mirrored_segment(active: ActiveSegment | None, end: int, plan: Plan, now_ms: int) -> ActiveSegment:
    """The newest segment after a mirror's files: its size and times decide when it ends, once it is written to."""
    segment = active or ActiveSegment(base_offset=end)
    for file in plan.adds:
        if any(segment.base_offset < roll <= file.base_offset for roll in plan.rolls):
            segment = ActiveSegment(base_offset=max(roll for roll in plan.rolls if roll <= file.base_offset))
        segment = segment.after(file.size, file.max_ms, now_ms)
    last = max(plan.rolls, default=segment.base_offset)
    return segment if last <= segment.base_offset else ActiveSegment(base_offset=last)


def _check_mirror(state: PartitionState, plan: Plan, removed: Sequence[DataFile]) -> None:
    """Files at or past the end, in order; the log start may follow the source's, and files below it go."""
    end = state.end if plan.end is None else plan.end
    start = state.log_start if plan.log_start is None else plan.log_start
    if plan.continues_at != state.end:
        raise PlanRefused(f"mirror {plan.plan_id} continues a log that ends at {plan.continues_at}, not {state.end}")
    if not state.log_start <= start <= end or end < state.end:
        raise PlanRefused(f"mirror {plan.plan_id} may not move log start and end to {start} and {end}")
    if late := [file.path for file in removed if file.end_offset > start]:
        raise PlanRefused(f"mirror {plan.plan_id} removes rows at or above its log start {start}: {late[0]}")
    at = state.end
    for file in plan.adds:
        _check_rows(file)
        if file.base_offset < at or file.end_offset > end or file.end_offset <= start:
            raise PlanRefused(f"{file.path} does not lie between {max(at, start)} and {end}, where the mirror goes on")
        at = file.end_offset
    rolls = [*state.rolls[-1:], *plan.rolls]
    if any(not before < roll for before, roll in pairwise(rolls)) or any(not state.end <= r <= end for r in plan.rolls):
        raise PlanRefused(f"mirror {plan.plan_id} has segments that begin out of order or outside {state.end}..{end}")
    for file in plan.adds:
        _check_crossing(file, rolls)


_CHECKS = {
    PlanKind.MERGE: _check_merge,
    PlanKind.TRIM: _check_trim,
    PlanKind.COMPACT: _check_compact,
    PlanKind.RETENTION: _check_retention,
    PlanKind.DELETE_RECORDS: _check_retention,
    PlanKind.MIRROR: _check_mirror,
}
