"""One figure that cannot be had does not cost the others, and less than all of it does not replace what is kept."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from bench.figures import RESULTS
from bench.peers import __main__ as peers
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.perf_output import UnreadableOutput
from bench.peers.sizes import FULL, QUICK, Sizes
from bench.peers.wire import BrokerError
from sluice.conf.jars import ResolveError
from sluice.log_store.errors import UnknownTopicOrPartition


def good(_: Sizes) -> PeerFindings:
    made = PeerFindings("start", "a title", {})
    made.add(SLUICE, "ours", "s", [1.0])
    made.add(KAFKA, "theirs", "s", [2.0])
    return made


@pytest.mark.parametrize(
    "error",
    [
        UnreadableOutput("no summary"),
        BrokerError("error code 6"),
        subprocess.TimeoutExpired("producer-perf", 300),
        httpx.ReadTimeout("silence"),
        httpx.HTTPStatusError("500", request=httpx.Request("GET", "http://x"), response=httpx.Response(500)),
        ResolveError("no java"),
        UnknownTopicOrPartition("orders"),
        json.JSONDecodeError("no JSON", "", 0),
        OSError("no space"),
        RuntimeError("lost records"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_figure_that_fails_does_not_cost_the_next(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def bad(_: Sizes) -> PeerFindings:
        raise error

    monkeypatch.setattr(peers, "FIGURES", {"produce": bad, "start": good})
    said = io.StringIO()
    code = peers.run_all(
        ["produce", "start"], QUICK, quick=True, folder=tmp_path, console=Console(file=said, width=200)
    )
    assert code == 1
    assert f"produce failed: {type(error).__name__}" in said.getvalue()
    assert [path.name for path in tmp_path.glob("*.json")] == ["start.json"]
    assert json.loads((tmp_path / "start.json").read_text())["took_s"] >= 0


def test_a_mistake_of_ours_is_not_taken_for_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def wrong(_: Sizes) -> PeerFindings:
        raise KeyError("a typing error")

    monkeypatch.setattr(peers, "FIGURES", {"start": wrong})
    with pytest.raises(KeyError):
        peers.run_all(["start"], QUICK, quick=True, folder=tmp_path, console=Console(file=io.StringIO()))


def test_only_a_full_run_replaces_the_results_of_the_repository():
    assert peers.results_folder(None, quick=False, rounds=FULL.rounds) == RESULTS / "peers"
    assert peers.results_folder(None, quick=False, rounds=FULL.rounds + 2) == RESULTS / "peers"
    for quick, rounds in ((True, FULL.rounds), (True, 1), (False, FULL.rounds - 1), (False, 1)):
        assert peers.results_folder(None, quick=quick, rounds=rounds) == peers.QUICK_RESULTS


def test_who_names_a_folder_gets_it(tmp_path: Path):
    assert peers.results_folder(tmp_path, quick=False, rounds=1) == tmp_path
    assert peers.results_folder(tmp_path, quick=True, rounds=3) == tmp_path
