"""The checker finds every anomaly in a history made by hand, and none in good ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.bad_stories import BAD, acknowledged_and_lost
from tests.lab.checker import Checker
from tests.lab.facts import Stored
from tests.lab.stories import GOOD, T0, Story, good


@pytest.mark.parametrize("tell", GOOD, ids=lambda t: t.__name__)
def test_good_histories_have_no_anomaly(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert story.found() == []


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
    texts = [(folder / name).read_text() for name in ("checker.py", "facts.py", "storage.py")]
    assert not any("sluice" in line for text in texts for line in text.splitlines() if "import" in line)
    assert len(texts[0].splitlines()) < 400
