from __future__ import annotations

import sys
from queue import SimpleQueue

import pytest

from tests import lanes


def lane(monkeypatch: pytest.MonkeyPatch, *, left: tuple[str, ...], program: str) -> int:
    """The code of a lane that runs `program`, with the folder as its argument, instead of pytest."""
    monkeypatch.setattr(lanes, "_command", lambda cache, _: [sys.executable, "-c", program, cache])
    queue = SimpleQueue[str]()
    for folder in left:
        queue.put(folder)
    return lanes.Lane("spark", queue).end()


def test_every_folder_is_there_and_named_once():
    named = [folder for folders in lanes.LANES.values() for folder in folders] + list(lanes.NEXT)
    assert len(named) == len(set(named))
    assert all((lanes._TESTS / folder).is_dir() for folder in named)


def test_the_worst_of_what_a_lane_took_counts(monkeypatch: pytest.MonkeyPatch):
    fails = "import sys; sys.exit(3 if sys.argv[1] == 'lab' else 0)"
    assert lane(monkeypatch, program=fails, left=("lab", "unit")) == 3
    assert lane(monkeypatch, program=fails, left=("unit",)) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lane_that_breaks_is_not_green(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "_command", lambda cache, _: ["/no/such/python", cache])
    assert lanes.Lane("spark", SimpleQueue[str]()).end() == 1
