"""Medians, ratios and verdicts: who is ahead follows from the unit, and a spread around 1 decides nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Figure, at_least
from bench.peers.findings import KAFKA, SLUICE, PeerFindings, verdict
from bench.peers.servers import memory_mib


def findings(unit: str, ours: list[float], theirs: list[float]) -> PeerFindings:
    made = PeerFindings("sample", "a sample", {"rounds": len(ours)}, notes=["a note"])
    made.add(SLUICE, "ours", unit, ours)
    made.add(KAFKA, "theirs", unit, theirs)
    made.compare("ours / theirs", "ours", "theirs", at_least(2))
    return made


def test_a_ratio_is_taken_round_by_round():
    ratio = findings("records/s", [300, 10, 600], [100, 10, 100]).ratios[0]
    assert list(ratio.figure.rounds) == [3, 1, 6]
    assert ratio.figure.median == 3
    assert ratio.to_json()["met"] is True


@pytest.mark.parametrize(("unit", "expected"), [("records/s", "ahead"), ("ms", "behind"), ("MiB", "behind")])
def test_the_unit_says_which_side_is_better(unit: str, expected: str):
    assert findings(unit, [20, 20, 20], [10, 10, 10]).ratios[0].verdict == expected
    other = {"ahead": "behind", "behind": "ahead"}[expected]
    assert findings(unit, [10, 10, 10], [20, 20, 20]).ratios[0].verdict == other


def test_rounds_on_both_sides_of_one_are_level():
    assert findings("s", [9, 10, 12], [10, 10, 10]).ratios[0].verdict == "level"


def test_a_spread_that_just_touches_one_hides_no_loss():
    assert findings("records/s", [7, 8, 12], [10, 10, 10]).ratios[0].verdict == "behind"


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9), st.booleans())
def test_a_verdict_turns_round_with_the_direction(rounds: list[float], lower: bool):
    swapped = {"ahead": "behind", "behind": "ahead", "level": "level"}
    figure = Figure("r", "×", rounds)
    assert verdict(figure, lower_is_better=lower) == swapped[verdict(figure, lower_is_better=not lower)]


def test_a_ratio_of_ours_to_ours_has_no_verdict():
    made = PeerFindings("sample", "a sample", {})
    made.add(SLUICE, "fsync on", "records/s", [5])
    made.add(SLUICE, "fsync off", "records/s", [10])
    made.compare("on / off", "fsync on", "fsync off", at_least(0.6))
    assert made.ratios[0].verdict is None
    body = made.ratios[0].to_json()
    assert "verdict" not in body
    assert body["met"] is False


def test_measures_of_different_units_are_not_compared():
    made = PeerFindings("sample", "a sample", {})
    made.add(SLUICE, "ours", "s", [1])
    made.add(KAFKA, "theirs", "ms", [1])
    with pytest.raises(ValueError, match="ours is in s, theirs in ms"):
        made.compare("x", "ours", "theirs")


def test_a_result_is_one_json_and_one_chart_without_paths(tmp_path: Path):
    findings("records/s", [3, 3, 3], [1, 1, 1]).write(tmp_path / "peers")
    assert sorted(path.name for path in (tmp_path / "peers").iterdir()) == ["sample.json", "sample.svg"]
    text = (tmp_path / "peers/sample.json").read_text()
    body = json.loads(text)
    assert {"commit", "machine", "settings", "figures", "notes"} <= body.keys()
    assert [one.get("side") for one in body["figures"]] == ["sluice", "kafka", None]
    assert body["figures"][2]["verdict"] == "ahead"
    assert str(Path.home()) not in text
    assert str(tmp_path) not in text


def test_memory_is_read_from_the_status_of_a_process():
    status = "Name:\tjava\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n"
    assert (memory_mib(status, "VmRSS"), memory_mib(status, "VmHWM")) == (1, 2)
    with pytest.raises(RuntimeError, match="VmSwap"):
        memory_mib(status, "VmSwap")
