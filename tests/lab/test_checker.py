"""The checker finds every anomaly in a history made by hand, and none in good ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.bad_reads import BAD_READS
from tests.lab.bad_writes import BAD_WRITES, acknowledged_and_lost
from tests.lab.checker import Checker
from tests.lab.facts import Stored
from tests.lab.stories import GOOD, T0, Story, good


@pytest.mark.parametrize("tell", GOOD, ids=lambda t: t.__name__)
def test_good_histories_have_no_anomaly(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert story.found() == []


BAD = [*BAD_WRITES, *BAD_READS]


@pytest.mark.parametrize(("tell", "kinds"), BAD, ids=[tell.__name__ for tell, _ in BAD])
def test_bad_histories_are_found_out(tell: Callable[[Story], None], kinds: set[str]) -> None:
    story = Story()
    tell(story)
    assert set(story.found()) == kinds


def test_an_anomaly_says_where_it_is() -> None:
    story = Story()
    acknowledged_and_lost(story)
    stored = {T0: Stored(story.rows, 0, 4)}
    (anomaly,) = Checker(story.events, stored).run()
    assert str(anomaly) == "lost: t-0@4: 'p:4:0', acknowledged to p.0: the log ends at 4"


def test_a_topic_that_vanished_is_told_once() -> None:
    story = Story()
    good(story)
    (anomaly,) = Checker(story.events, {}).run()
    assert "gone with 4 acknowledged records" in str(anomaly)


def test_the_checker_knows_nothing_of_the_code_under_test() -> None:
    folder = Path(__file__).parent
    names = ("checker", "check_writes", "check_reads", "check_groups", "facts", "storage")
    lines = [line for name in names for line in (folder / f"{name}.py").read_text().splitlines()]
    imports = [line for line in lines if re.match(r"\s*(from|import)\s", line)]
    assert not [line for line in imports if "sluice" in line]
    assert {line.split()[1] for line in imports if " tests." in line} <= {f"tests.lab.{name}" for name in names}
    assert len(lines) < 1_100, "all of it is to be audited"


def test_every_anomaly_has_a_bad_history() -> None:
    folder = Path(__file__).parent
    text = "".join((folder / f"check_{name}.py").read_text() for name in ("writes", "reads", "groups"))
    known = {*re.findall(r'self\.blame\(\s*"([a-zA-Z ]+)"', text), *re.findall(r'"(lost|read past the HW)"', text)}
    known |= {f"{kind} {how}" for kind in ("read", "poll") for how in ("went back", "skipped")} | {"copy skipped"}
    known |= {f"{what} went back" for what in ("log start", "high watermark")}
    assert known == {kind for _, kinds in BAD for kind in kinds}
