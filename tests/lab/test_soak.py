"""The judgement of a soak, on samples made by hand; and a soak too short to say much, but one that goes all the way."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.flatness import BOUNDS, judged
from tests.lab.soak import JUDGED_FROM_S, not_held, soak
from tests.lab.soak_acks import Acks
from tests.lab.soak_files import ON_ITS_WAY_S, Orphans, stored_otherwise

LONG_S = 8 * 3600.0
FLAT = dict.fromkeys(BOUNDS, 100.0) | {"orphaned files": 0.0}


def test_flat_figures_are_flat() -> None:
    """Noise, and a warm-up in the first quarter, are no growth."""
    samples = [{name: value * (1 + number % 3 / 100) for name, value in FLAT.items()} for number in range(30)]
    samples = [dict.fromkeys(BOUNDS, 1.0)] * 10 + samples
    assert {figure.verdict for figure in judged(samples, LONG_S)} == {"flat"}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_figure_that_grows_is_found(name: str) -> None:
    samples = [FLAT | {name: FLAT[name] + 20.0 * number} for number in range(40)]
    assert [figure.name for figure in judged(samples, LONG_S) if figure.grew] == [name]


def test_a_small_figure_may_double() -> None:
    samples = [FLAT | {"threads": 2.0 + number // 20 * 2} for number in range(40)]
    assert not any(figure.grew for figure in judged(samples, LONG_S))


def test_what_had_no_time_to_settle_is_not_judged() -> None:
    samples = [FLAT | {"commit files, MiB": 10.0 * number, "orphaned files": 1.0 * number} for number in range(40)]
    verdicts = {figure.name: figure.verdict for figure in judged(samples, 60)}
    assert verdicts["commit files, MiB"].startswith("too short a run")
    assert verdicts["orphaned files"] == "grew"


def test_an_orphan_is_a_file_that_no_commit_named_for_a_while(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    orphans = Orphans(tmp_path)

    def written(name: str, version: int | None, age_s: float) -> None:
        (tmp_path / name).write_bytes(b"PAR1")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
        if version is not None:
            commit = json.dumps({"add": {"path": name}}, separators=(",", ":"))
            (tmp_path / "_delta_log" / f"{version:020}.json").write_text(commit)

    written("a.parquet", 0, 2 * ON_ITS_WAY_S)
    written("young.parquet", None, 0)
    assert orphans.count() == 0
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()  # cleaned up: what it named is known still
    written("old.parquet", None, 2 * ON_ITS_WAY_S)
    written("b.parquet", 1, 2 * ON_ITS_WAY_S)
    assert orphans.count() == 1


def test_a_file_that_was_committed_while_commits_were_read_is_no_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text('{"add":{"path":"a.parquet"}}')
    plain = Path.read_bytes

    def read_late(path: Path) -> bytes:
        (tmp_path / "a.parquet").write_bytes(b"PAR1")
        os.utime(tmp_path / "a.parquet", (time.time() - 2 * ON_ITS_WAY_S,) * 2)
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", read_late)
    orphans = Orphans(tmp_path)
    assert [orphans.count(), orphans.count()] == [0, 0]


def test_a_rate_that_is_not_held_is_told_of_a_run_that_is_long_enough() -> None:
    assert len(not_held(90, 100, JUDGED_FROM_S)) == 1
    assert not_held(96, 100, JUDGED_FROM_S) == not_held(50, 100, JUDGED_FROM_S - 1) == []


def acks(*ranges: tuple[int, int]) -> Acks:
    found = Acks()
    for first, end in ranges:
        found.add("t", [{"partition": 0, "base_offset": first, "count": end - first}])
    return found


@given(st.lists(st.integers(1, 9), max_size=20), st.randoms())
def test_ranges_in_any_order_are_one_in_the_end(sizes: list[int], dice: random.Random) -> None:
    ends = list(itertools.accumulate(sizes))
    ranges = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    dice.shuffle(ranges)
    found = acks(*ranges)
    assert found.wrong({("t", 0): sum(sizes)}) == []
    assert found.count("t") == sum(sizes)


@pytest.mark.parametrize(
    ("ranges", "end"),
    [
        ([(0, 5), (7, 9)], 9),  # lost, or never answered for
        ([(0, 5)], 6),  # more than was acknowledged
        ([(0, 5)], 4),  # less
        ([(0, 5), (4, 6)], 6),
        ([(0, 5), (0, 5)], 5),
        ([(3, 6), (0, 9)], 9),
        ([(0, 9), (3, 6)], 9),
        ([(0, 2), (4, 6), (1, 5)], 6),
    ],
)
def test_offsets_that_were_told_twice_or_not_at_all_are_found(ranges: list[tuple[int, int]], end: int) -> None:
    assert acks(*ranges).wrong({("t", 0): end})


@pytest.mark.parametrize(
    ("offsets", "compacted", "right"),
    [
        ([3, 4, 5], False, True),
        ([3, 5], False, False),
        ([3, 5], True, True),
        ([3, 4], True, False),
        ([5, 5], True, False),
    ],
)
def test_rows_are_those_of_the_log(tmp_path: Path, offsets: list[int], compacted: bool, right: bool) -> None:
    write_deltalake(tmp_path / "topics" / "t" / "0", pa.table({"offset": pa.array(offsets, pa.int64())}))
    assert (stored_otherwise(tmp_path, {("t", 0): 6}, {"t"} if compacted else ()) == []) is right


@pytest.mark.full
def test_a_short_soak(tmp_path: Path) -> None:
    assert soak(20, tmp_path) == 0
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["wrong"] == []
    assert min(found["acked"].values()) > 0
    assert found["figures"]["memory, MiB"]["last_quarter"] > 0
    assert (tmp_path / "soak.svg").read_text().startswith("<svg")
