"""What a soak finds on disk: how far checkpoints are behind, files that no commit names, bytes by kind; and whether the
rows are those that they should be."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

ON_ITS_WAY_S = 60.0
"""A data file is written before the commit that names it. One that is older and that nobody names is an orphan."""
_NAMED = re.compile(rb'"path":"([^"]+\.parquet)"')


def behind(folder: Path) -> int:
    """Versions since the last checkpoint."""
    log = folder / "_delta_log"
    newest = max((int(path.stem) for path in log.glob("*.json")), default=0)
    hint = log / "_last_checkpoint"
    return newest - (json.loads(hint.read_text())["version"] if hint.exists() else 0)


class Orphans:
    """Of one partition, from its first commit on: each commit is read once, long before it is cleaned up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._named: set[str] = set()
        self._read = -1

    def count(self) -> int:
        """Files that left the log are no orphans: a commit named them, and they go by themselves."""
        commits = {int(path.stem): path for path in (self._folder / "_delta_log").glob("*.json")}
        for version in sorted(version for version in commits if version > self._read):
            self._named |= {name.decode() for name in _NAMED.findall(commits[version].read_bytes())}
            self._read = version
        # Listed after the commits were read: else a file that came in between would be forgotten, and an orphan later.
        listed = {path.name: path for path in self._folder.glob("*.parquet")}
        self._named &= listed.keys()
        return sum(_age_s(path) > ON_ITS_WAY_S for name, path in listed.items() if name not in self._named)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0  # it was cleaned up meanwhile


def mebibytes(root: Path) -> tuple[float, float]:
    """Of commit files and checkpoints; of everything else."""
    commits = rest = 0
    for path, _, names in os.walk(root):
        total = 0
        for name in names:
            try:
                total += os.stat(f"{path}/{name}").st_blocks * 512
            except FileNotFoundError:
                continue  # it was cleaned up meanwhile
        if path.endswith("/_delta_log"):
            commits += total
        else:
            rest += total
    return commits / (1 << 20), rest / (1 << 20)


def stored_otherwise(root: Path, ends: Mapping[tuple[str, int], int], compacted: Collection[str]) -> list[str]:
    """Partitions whose rows, as delta-rs finds them, are not one for each offset up to the end of the log; of
    those that are compacted there may be gaps. What was in front of them has left the log."""
    found = []
    for (topic, partition), end in ends.items():
        table = DeltaTable(str(root / "topics" / topic / str(partition)))
        query = 'select count(*) n, count(distinct "offset") d, min("offset") a, max("offset") z from t'
        (row,) = pa.table(QueryBuilder().register("t", table).execute(query).read_all()).to_pylist()
        whole = row["n"] == row["d"] and (topic in compacted or row["n"] == row["z"] - row["a"] + 1)
        if not (whole and row["z"] == end - 1):
            found.append(f"{topic}-{partition} ends at {end}, stored are {row}")
    return found
