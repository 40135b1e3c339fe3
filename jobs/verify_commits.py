"""Does one commit follow from the log before it? Pure checks on a commit and the state it was put upon.

`PartitionState.apply` refuses what would lead a reader astray and stops at the first fault. Here everything that
docs/protocol.md says about a commit is checked, each fault under its number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sluice.jobs.verify_findings import Finding
from sluice.log_store.delta_log import TXN_END, TXN_EPOCH, TXN_START, Commit, DataFile
from sluice.log_store.errors import PlanRefused
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import ROWS_UNCHANGED, Plan, PlanKind, check_plan
from sluice.log_store.records import SPARK_SCHEMA

DATA_NAME = re.compile(r"(?P<base>[0-9]{20})-(?P<epoch>[0-9]+)-[0-9a-z]+\.parquet")
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_FEATURE_KEYS = ("readerFeatures", "writerFeatures")
_FORBIDDEN_CONFIGURATION = (
    "delta.setTransactionRetentionDuration",
    "delta.enableDeletionVectors",
    "delta.enableRowTracking",
    "delta.enableInCommitTimestamps",
    "delta.columnMapping.mode",
)

Action = Mapping[str, Any]


def parse_actions(data: bytes) -> list[Action]:
    """The plain JSON of a commit that was decoded before, for what `Commit` does not keep."""
    return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]


def check_commit(before: PartitionState, commit: Commit, actions: Sequence[Action]) -> Iterator[Finding]:
    """Every fault of a commit of ours; `before` is the state that it was put upon."""
    yield from _offsets(before, commit)
    yield from _agreement(before, commit)
    yield from check_table_actions(commit.version, actions)
    yield from _names(before, commit)
    yield from check_add_actions(commit, actions)
    yield from _segments(before, commit)
    if commit.details.get("kind") == "append":
        yield from _append(before, commit)
    if commit.details.get("kind") == "plan":
        yield from _plan(before, commit)


def _offsets(before: PartitionState, commit: Commit) -> Iterator[Finding]:
    details, version = commit.details, commit.version
    base, end, start = details.get("base"), details.get("end"), details.get("start")
    if base != before.end:
        text = f"it says the log before it ends at {base}, it ends at {before.end}"
        yield Finding("I-1", text, offset=before.end, version=version)
    if end is None or end < before.end:
        text = f"it moves the high watermark back from {before.end} to {end}"
        yield Finding("I-1", text, offset=end, version=version)
    elif end != before.end and details.get("kind") != "append" and not _mirrors(details):
        text = f"a commit of kind {details.get('kind')!r} moves the high watermark from {before.end} to {end}"
        yield Finding("I-1", text, offset=end, version=version)
    if start is None or start < before.log_start:
        text = f"it moves the log start back from {before.log_start} to {start}"
        yield Finding("I-1", text, offset=start, version=version)
    elif end is not None and start > end:
        yield Finding("I-1", f"its log start {start} lies past its end {end}", offset=start, version=version)


def _mirrors(details: Mapping[str, Any]) -> bool:
    return str((details.get("plan") or {}).get("kind", "")) == "mirror"


def _agreement(before: PartitionState, commit: Commit) -> Iterator[Finding]:
    details, version = commit.details, commit.version
    expected = {TXN_EPOCH: details.get("epoch"), TXN_END: details.get("end"), TXN_START: details.get("start")}
    if dict(commit.txns) != expected:
        text = f"its txn actions {dict(commit.txns)} disagree with commitInfo {expected}"
        yield Finding("I-3", text, version=version)
    epoch = details.get("epoch", -1)
    if epoch < before.epoch:
        yield Finding("I-3", f"it goes back from epoch {before.epoch} to {epoch}", version=version)
    claims = details.get("kind") in ("create", "claim")
    if not claims and (not before.claims or before.claims[-1].epoch != epoch):
        text = f"it was put under epoch {epoch}, which had not claimed the partition"
        yield Finding("R-1", text, offset=details.get("base"), version=version)
    if details.get("kind") == "create" and version != 0:
        yield Finding("I-2", "the table is created a second time", version=version)


def check_table_actions(version: int, actions: Sequence[Action]) -> Iterator[Finding]:
    """Protocol and metaData: as they must be in version 0, and never again (I-5)."""
    for action in actions:
        if "protocol" in action:
            yield from check_protocol(action["protocol"], version)
            if version != 0:
                yield Finding("I-5", "it changes the table's protocol", version=version)
        if "metaData" in action:
            yield from _metadata(action["metaData"], version)
            if version != 0:
                yield Finding("I-5", "it changes the table's metaData", version=version)
    if version == 0 and not any("protocol" in action for action in actions):
        yield Finding("I-5", "version 0 has no protocol", version=0)


def check_protocol(protocol: Mapping[str, Any], version: int) -> Iterator[Finding]:
    numbers = {key: protocol.get(key) for key in _PROTOCOL}
    features = [feature for key in _FEATURE_KEYS for feature in protocol.get(key) or ()]
    if numbers != _PROTOCOL or features:
        found = f"({numbers['minReaderVersion']}, {numbers['minWriterVersion']}) {' '.join(features)}".strip()
        yield Finding("I-5", f"the protocol is {found} instead of (1, 2)", version=version)


def _metadata(metadata: Mapping[str, Any], version: int) -> Iterator[Finding]:
    configuration = metadata.get("configuration") or {}
    for key in _FORBIDDEN_CONFIGURATION:
        if key in configuration:
            yield Finding("I-5", f"the table sets {key} = {configuration[key]!r}", version=version)
    if configuration.get("delta.isolationLevel") != "WriteSerializable":
        text = f"delta.isolationLevel is {configuration.get('delta.isolationLevel')!r} instead of WriteSerializable"
        yield Finding("R-14", text, version=version)
    try:
        schema = msgspec.json.decode(metadata.get("schemaString") or "null")
    except msgspec.DecodeError:
        schema = None
    if schema != SPARK_SCHEMA or metadata.get("partitionColumns"):
        yield Finding("I-5", "the table has another schema than section 2 says", version=version)


def _names(before: PartitionState, commit: Commit) -> Iterator[Finding]:
    version = commit.version
    seen: set[str] = set()
    for file in commit.adds:
        named = DATA_NAME.fullmatch(file.path)
        if named is None:
            yield Finding("I-4", "its name is not that of a data file", version=version, file=file.path)
            continue
        if int(named["base"]) != file.base_offset:
            text = f"its name begins with offset {int(named['base'])}, its statistics with {file.base_offset}"
            yield Finding("I-4", text, offset=file.base_offset, version=version, file=file.path)
        if int(named["epoch"]) > commit.details.get("epoch", -1):
            text = f"its name has epoch {named['epoch']}, later than the commit's {commit.details.get('epoch')}"
            yield Finding("I-4", text, version=version, file=file.path)
        if file.path in seen or file.path in before.removed or before.position(file.path) >= 0:
            yield Finding("I-4", "its name was used before", version=version, file=file.path)
        seen.add(file.path)


def check_add_actions(commit: Commit, actions: Sequence[Action]) -> Iterator[Finding]:
    """What other engines rely on in an `add`, and `Commit` does not keep (I-12, section 3)."""
    kind = str((commit.details.get("plan") or {}).get("kind", ""))
    data_change = kind not in {unchanged.value for unchanged in ROWS_UNCHANGED}
    for action in actions:
        change = action.get("add") or action.get("remove")
        if change is None:
            continue
        path = str(change.get("path"))
        if change.get("dataChange") is not data_change:
            text = f"dataChange is {change.get('dataChange')} in a commit of kind {kind or 'append'}"
            yield Finding("section 3", text, version=commit.version, file=path)
        if "add" in action:
            yield from _statistics(change, path, commit.version)


def _statistics(add: Mapping[str, Any], path: str, version: int) -> Iterator[Finding]:
    stats = msgspec.json.decode(add.get("stats") or "{}")
    nulls = stats.get("nullCount") or {}
    for column in ("offset", "timestamp"):
        if nulls.get(column) != 0:
            text = f"nullCount of {column} is {nulls.get(column)} instead of 0"
            yield Finding("I-12", text, version=version, file=path)
    if add.get("partitionValues"):
        text = f"it has partition values {add['partitionValues']}; the table is not partitioned"
        yield Finding("section 3", text, version=version, file=path)


def _append(before: PartitionState, commit: Commit) -> Iterator[Finding]:
    """Dense, in order, from the old end to the new one (I-1); times and producers inside (R-13, R-9)."""
    details, version = commit.details, commit.version
    at = before.end
    for file in sorted(commit.adds, key=lambda file: file.base_offset):
        if file.base_offset != at:
            text = f"an appended file begins at {file.base_offset} where {at} comes next"
            yield Finding("I-1", text, offset=at, version=version, file=file.path)
        if file.records != file.end_offset - file.base_offset:
            text = f"{file.records} rows were appended for offsets {file.base_offset}..{file.end_offset - 1}"
            yield Finding("I-1", text, offset=file.base_offset, version=version, file=file.path)
        at = file.end_offset
    if at != details.get("end"):
        text = f"the appended files end at {at}, the commit says {details.get('end')}"
        yield Finding("I-1", text, offset=at, version=version)
    if commit.removes:
        yield Finding("I-8", f"an append removes {len(commit.removes)} files", version=version)
    if details.get("ms", 0) < before.append_ms:
        text = f"its append time {details.get('ms')} lies before that of an earlier version, {before.append_ms}"
        yield Finding("R-13", text, version=version)
    for entry in details.get("producers", ()):
        if not before.end <= entry[4] or entry[4] + entry[3] > details.get("end", -1):
            text = f"a batch of producer {entry[0]} is said to stand at {entry[4]}..{entry[4] + entry[3] - 1}"
            yield Finding("R-9", text, offset=entry[4], version=version)


def _segments(before: PartitionState, commit: Commit) -> Iterator[Finding]:
    rolls, version = list(commit.details.get("rolls", ())), commit.version
    low, high = before.end, commit.details.get("end", before.end)
    for previous, roll in zip([-1, *rolls], rolls, strict=False):
        if roll <= previous or not low <= roll <= high:
            text = f"a segment begins at {roll}, outside the offsets {low}..{high} of this version or out of order"
            yield Finding("R-10", text, offset=roll, version=version)
    yield from check_crossings(commit.adds, [*before.rolls, *rolls], version)


def check_crossings(files: Sequence[DataFile], rolls: Sequence[int], version: int | None = None) -> Iterator[Finding]:
    """No file crosses a roll (R-10). `rolls` in order."""
    for file in files:
        after = bisect_right(rolls, file.base_offset)
        if after < len(rolls) and rolls[after] < file.end_offset:
            text = f"{file.base_offset}..{file.end_offset - 1} crosses the segment boundary at {rolls[after]}"
            yield Finding("R-10", text, offset=rolls[after], version=version, file=file.path)


def _plan(before: PartitionState, commit: Commit) -> Iterator[Finding]:
    """The leader's own rules, applied once more to what it committed (R-7)."""
    said = commit.details.get("plan") or {}
    mirrors = _mirrors(commit.details)
    try:
        plan = Plan(
            plan_id=said["id"],
            kind=PlanKind(said["kind"]),
            reason=said["reason"],
            base_version=before.version,
            removes=commit.removes,
            adds=commit.adds,
            log_start=commit.details.get("start"),
            first_dirty=said.get("first_dirty"),
            continues_at=commit.details.get("base") if mirrors else None,
            end=commit.details.get("end") if mirrors else None,
            rolls=tuple(commit.details.get("rolls", ())) if mirrors else (),
        )
    except (KeyError, ValueError) as error:
        yield Finding("R-7", f"its plan cannot be understood: {error!r}", version=commit.version)
        return
    if plan.plan_id in before.plans:
        text = f"plan {plan.plan_id} was applied before, at version {before.plans[plan.plan_id]}"
        yield Finding("R-7", text, version=commit.version)
    try:
        check_plan(before, plan)
    except PlanRefused as refused:
        yield Finding("R-7", refused.message, version=commit.version)
