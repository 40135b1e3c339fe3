"""Everything at once: the verdict is about safety, never about speed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.counts import TORTURE_S
from tests.lab.grouping import GROUPS
from tests.lab.producing import KINDS
from tests.lab.report import Report, Round

LONG_S = 300
"""From here on everybody must have got something done, on the busiest machine."""
CLIENTS = {
    *(*KINDS, "python", "slow", "fetch-0", "fetch-1", "delta", "jobs"),
    *(f"{group}-{number}" for group in GROUPS for number in range(2)),
    *(
        "watch committed",
        "admin position",
        "admin alter",
        "admin grow",
        "admin delete",
        "admin create",
        "admin produce",
        "admin read",
    ),
}


@pytest.mark.timeout(TORTURE_S * 2 + 900)
def test_nothing_breaks(tmp_path: Path) -> None:
    seed, report = random.randrange(1 << 31), tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.lab", "torture", "--seconds", str(TORTURE_S), "--seed", str(seed)]
    done = subprocess.run([*command, "--report", str(report)], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    found = json.loads(report.read_text())
    assert found["anomalies"] == []
    for one in found["rounds"]:
        # What was asserted was also tried.
        assert one["looked_at"]["acknowledged records"] > 0, one
        assert one["looked_at"]["records read"] > 0, one
        assert sum(one["nemeses"].values()) > 0, one
    if TORTURE_S >= LONG_S:
        everybody_got_something_done(found["rounds"])


def everybody_got_something_done(rounds: list[dict[str, Any]]) -> None:
    done, jobs, looked = Counter[str](), Counter[str](), Counter[str]()
    for one in rounds:
        done.update({name: counts.get("ok", 0) for name, counts in one["clients"].items()})
        jobs.update(one["jobs"])
        looked.update(one["looked_at"])
    assert not (idle := [name for name in CLIENTS if not done[name]]), idle
    # Those that are killed, or fall into a time when nothing can be written, may fail.
    assert any(name.endswith(" 0") for name in jobs), jobs
    if any("spark" in one["clients"] for one in rounds):
        assert looked["records copied by a job"] > 0, looked


def test_steps_that_broke_nothing_are_counted_apart() -> None:
    told = {"store-fail": ["0 calls", "10 calls"], "torn-wal": ["0 bytes at 7 of a.log"], "kill": [""], "drop": []}
    told |= {"torn-commit": ["everything was synced", "a job leads: nothing was torn", "t-0: version 4, synced was 3"]}
    one = Round("folder", 1, 1.0, [])
    notes = [(kind, what) for kind, whats in told.items() for what in whats]
    one.count([{"is": "note", "do": "nemesis", "who": "lab", "kind": kind, "told": what} for kind, what in notes])
    assert one.nemeses == {"store-fail": 1, "kill": 1, "torn-commit": 1}
    assert one.idle == {"store-fail": 1, "torn-wal": 1, "torn-commit": 2}
    assert one.done == 3


def test_the_report_says_why_jobs_failed() -> None:
    one = Round("folder", 1, 1.0, [])
    ended = [(0, "done"), (1, "the disk is full"), (1, "the disk is full"), (-9, "")]
    one.count(
        [{"is": "ok", "do": "job", "who": "jobs", "job": "merge", "code": code, "said": said} for code, said in ended]
    )
    assert one.failed == {"merge: the disk is full": 2}
    assert "2 × merge: the disk is full" in Report(1, 1.0, [], [one]).text()


def test_clients_that_got_nothing_done_are_noticed() -> None:
    clients = {name: {"invoke": 2, "ok": 1} for name in CLIENTS}
    looked = {"records copied by a job": 1}
    good: dict[str, Any] = {"clients": clients, "jobs": {"merge -9": 1, "vacuum 0": 1}, "looked_at": looked}
    everybody_got_something_done([good])
    for change in (
        {"clients": clients | {"slow": {"invoke": 9}}},
        {"jobs": {"merge 1": 4}},
        {"clients": clients | {"spark": {"ok": 1}}, "looked_at": {}},
    ):
        with pytest.raises(AssertionError):
            everybody_got_something_done([good | change])
