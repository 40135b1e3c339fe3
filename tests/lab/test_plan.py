"""The schedule follows from the seed alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.log_store.claims import RootLock
from tests.lab.nemeses import Nemeses
from tests.lab.plan import FIRST_S, KINDS, QUIET_S, schedule
from tests.lab.runner import rounds_of


@pytest.mark.parametrize("site", KINDS)
def test_the_same_seed_gives_the_same_plan(site: str) -> None:
    once, again, other = (list(map(str, schedule(seed, 300, site))) for seed in (7, 7, 8))
    assert once == again
    assert once != other


def test_the_same_seed_gives_the_same_plan_in_another_process() -> None:
    code = "from tests.lab.plan import schedule; print('|'.join(map(str, schedule(7, 60, 'disk'))))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert found == "|".join(map(str, schedule(7, 60, "disk"))).strip()


@pytest.mark.parametrize("site", KINDS)
def test_every_kind_comes_and_can_be_done(site: str) -> None:
    steps = schedule(1, 200, site)
    assert {step.kind for step in steps} == set(KINDS[site])
    assert all(hasattr(Nemeses, f"do_{step.kind.replace('-', '_')}") for step in steps)
    assert all(FIRST_S <= step.at < 200 - QUIET_S for step in steps)
    assert [step.at for step in steps] == sorted(step.at for step in steps)


def test_rounds_take_turns_and_fill_the_time() -> None:
    assert rounds_of(45, ["disk", "bucket"]) == [("disk", 22.5), ("bucket", 22.5)]
    rounds = rounds_of(1800, ["disk", "bucket"])
    assert len(rounds) == 12
    assert sum(seconds for _, seconds in rounds) == pytest.approx(1800)
    assert [site for site, _ in rounds[:3]] == ["disk", "bucket", "disk"]


def test_nothing_is_torn_while_an_offline_job_leads(tmp_path: Path) -> None:
    """It is alive, and would go on behind what was torn: no crash leaves that."""
    nothing = SimpleNamespace(kill=lambda: None)
    site: Any = SimpleNamespace(
        path=tmp_path, wal=tmp_path / "_sluice" / "wal", service=nothing, route=lambda: None, start=lambda: None
    )
    nemeses, job = Nemeses(site, lambda: None), RootLock(tmp_path)
    assert job.acquire()
    assert nemeses.do_torn_wal(9, 1) == "a job leads: nothing was torn"
    job.release()
    assert nemeses.do_torn_wal(9, 1) == "nothing was written yet"
    assert job.acquire(), "it is given back"
    job.release()
