"""Which files a deep merge rewrites: inside closed segments, up to the target, once (R-10, R-11)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice.jobs.merge_plan import TAG, MergeGroup, choose_deep_merges, deep_codec, tag_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.log_shape import LogShape
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import Plan, PlanKind, check_plan

TARGET = 100


@st.composite
def logs(draw: st.DrawFn) -> PartitionState:
    sizes = draw(st.lists(st.tuples(st.integers(1, 150), st.booleans(), st.booleans()), max_size=25))
    files, rolls = [], []
    for number, (size, tagged, rolled) in enumerate(sizes):
        tags = {TAG: "zstd-6"} if tagged else {}
        base, name = number * 2, f"{number * 2:020d}-1-a.parquet"
        files.append(DataFile(name, size, base, base + 2, 2, 0, 1, 0, tags=tags))
        if rolled and number:
            rolls.append(number * 2)
    end = len(files) * 2
    return PartitionState(version=1, end=end, log_start=draw(st.integers(0, end)), files=files, rolls=rolls)


def groups(state: PartitionState, **options: bool) -> list[MergeGroup]:
    return choose_deep_merges(LogShape.of(state), TARGET, "zstd-6", **options)


def merged(state: PartitionState, group: MergeGroup) -> DataFile:
    first, last = group.files[0], group.files[-1]
    return DataFile(
        f"{first.base_offset:020d}-1-b.parquet",
        max(1, group.bytes * 9 // 10),
        first.base_offset,
        last.end_offset,
        group.records,
        0,
        1,
        0,
        tags={TAG: "zstd-6"},
    )


@given(logs(), st.booleans(), st.booleans())
def test_every_group_is_a_plan_that_the_leader_takes(state: PartitionState, active: bool, recompress: bool) -> None:
    """R-7: no roll is crossed, and no file is in two groups."""
    chosen = groups(state, include_active=active, recompress=recompress)
    paths = [file.path for group in chosen for file in group.files]
    assert len(paths) == len(set(paths))
    bound = state.end if active else max([state.log_start, *(roll for roll in state.rolls if roll > state.log_start)])
    for group in chosen:
        plan = Plan(
            plan_id="p",
            kind=PlanKind.MERGE,
            reason=group.reason,
            base_version=1,
            removes=tuple(file.path for file in group.files),
            adds=(merged(state, group),),
        )
        assert check_plan(state, plan) == list(group.files)
        assert group.files[-1].end_offset <= bound
        assert group.files[0].base_offset >= state.log_start
        assert len(group.files) == 1 or group.bytes <= TARGET
        assert len(group.files) > 1 or (recompress and group.files[0].tags.get(TAG) != "zstd-6")


@given(logs())
def test_runs_end(state: PartitionState) -> None:
    """Each run leaves fewer files, or fewer that are not written at the level: there is a last one."""
    for _ in range(60):
        chosen = groups(state)
        if not chosen:
            return
        gone = {file.path for group in chosen for file in group.files}
        kept = [file for file in state.files if file.path not in gone]
        new = [replace(merged(state, group), path=f"{group.files[0].path[:20]}-1-{_:x}c.parquet") for group in chosen]
        state.files = sorted([*kept, *new], key=lambda file: file.base_offset)
    raise AssertionError("it would go on for ever")


def test_levels() -> None:
    assert tag_of(deep_codec("producer")) == "zstd-6"
    assert tag_of(deep_codec("zstd", 12)) == "zstd-12"
    assert tag_of(deep_codec("gzip", 12)) == "gzip-9"
    assert tag_of(deep_codec("snappy")) == "snappy"
    assert tag_of(deep_codec("uncompressed")) == "none"
