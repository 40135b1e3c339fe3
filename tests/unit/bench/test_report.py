"""docs/performance.md holds what the results hold: losses and gaps as plainly as wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import reasons
from bench.peers import disk, fetch, latency, produce
from bench.peers.names import NAMES
from bench.report import DOCUMENT, document, load, render, results, unexplained


def result(*figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    machine = {"cores": 2, "memory_gib": 23.5, "python": "3.11.7", "cores_busy_elsewhere": 0.25}
    body = {"name": "x", "title": "what it is", "commit": "abc1234", "machine": machine, "notes": ["a note"]}
    return body | {"figures": list(figures)} | more


def measure(what: str, value: float, unit: str = "ms", **more: Any) -> dict[str, Any]:
    return {"what": what, "unit": unit, "median": value, "quartiles": [value, value], "rounds": [value] * 3} | more


WON = measure("fast / theirs", 3.21, "×", verdict="ahead", better="higher", target="≥ 3", met=True)
LOST = measure("slow / theirs", 1.77, "×", verdict="behind", better="lower", target="≤ 1", met=False)
PEER = result(measure("ours", 71.3, side="sluice"), measure("theirs", 40.3, side="kafka"), WON, LOST)


def section(text: str, title: str) -> str:
    return text.split(f"{title}\n", 1)[1].split("\n#", 1)[0]


def test_what_was_lost_is_said_three_times():
    text = render({"latency": PEER}, {}, frozenset())
    assert "| latency | slow / theirs | 1.77 | ≤ 1 | **no** |" in section(text, "## Targets")
    assert section(text, "## Where Sluice is behind").count("1.77") == 1
    assert "fast" not in section(text, "## Where Sluice is behind")
    assert "| slow / theirs | 1.77 | 1.77 … 1.77 | ≤ 1 **missed** | **behind** |" in section(text, "### latency")


def test_the_reason_of_a_loss_is_told_once_with_figures_from_the_results(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reasons, "REASONS", {("latency", "slow"): "It waits {latency: ours}, {latency: nothing}."})
    other = LOST | {"what": "slower / theirs"}
    peers = {"latency": result(measure("ours", 71.3), LOST, other, LOST | {"what": "lost / theirs"})}
    told = section(render(peers, {}, frozenset()), "## Where the rest of the time goes")
    assert "*latency: slow / theirs; latency: slower / theirs*. It waits 71.3 ms, not measured." in told
    assert unexplained(peers, {}) == ["latency: lost / theirs"]


def test_every_target_missed_in_this_repository_has_its_reason():
    assert unexplained(*results()) == []


def test_a_ratio_among_ourselves_is_neither_ahead_nor_behind():
    text = render({"produce": result(measure("on / off", 0.5, "×", better="higher"))}, {}, frozenset())
    assert "| on / off | 0.5 | 0.5 … 0.5 |  |  |" in section(text, "### produce")
    assert "In none of the ratios" in section(text, "## Where Sluice is behind")


def test_every_table_names_its_commit_machine_and_neighbours():
    for kind in ({"a": PEER}, {}), ({}, {"a": result(measure("m", 5))}):
        about = section(render(*kind, frozenset()), "### a")
        assert "Commit abc1234; 2 cores, 23.5 GiB, Python 3.11.7; 3 rounds; other processes used 0.25 cores." in about
        assert "- a note" in about


def test_a_newer_result_tells_more_of_its_machine_and_how_long_it_took():
    machine = PEER["machine"] | {"cpu": "A CPU", "file_system": "ext4", "java": "17.0.15"}
    about = section(render({"a": PEER | {"machine": machine, "took_s": 1234.5}}, {}, frozenset()), "### a")
    assert "2 cores (A CPU), 23.5 GiB, ext4, Python 3.11.7, Java 17.0.15; 3 rounds in 1,234 s; other" in about


def test_ratios_of_one_row_that_share_a_reason_name_it_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reasons, "REASONS", {("latency", "slow"): "It waits."})
    peers = {"latency": result(LOST, LOST | {"what": "slow / others"}, LOST | {"what": "slow alone"})}
    told = section(render(peers, {}, frozenset()), "## Where the rest of the time goes")
    assert "- *latency: slow / theirs and others; latency: slow alone*. It waits." in told


def test_a_jar_that_was_taken_instead_is_said():
    jars = ["spark-token-provider-kafka-0-10_2.13-4.0.0"]
    about = section(render({"a": PEER | {"settings": {"jars_of_the_kafka_source": jars}}}, {}, frozenset()), "### a")
    assert "- Spark's Kafka source is spark-token-provider-kafka-0-10_2.13-4.0.0\n" in about
    assert "4.0.0 was taken instead" in about


def test_whatever_may_be_lost_beside_kafka_has_its_reason():
    for section_, names in (
        ("produce", [f"{ours} / {theirs}" for ours, theirs, _ in produce.pairs()]),
        ("latency", [f"{ours} / {theirs}" for ours, theirs, _ in latency.pairs()]),
        ("fetch", [f"{name} / consumer-perf, none" for name in (*fetch.ROWS, *fetch.OBJECTS)]),
        ("disk", [f"{ours} / {theirs}" for ours in (disk.BEFORE, disk.MERGED, disk.DEEP) for theirs in disk.THEIRS]),
    ):
        assert [name for name in names if reasons.reason_for(section_, name, lambda *_: "1") is None] == []


def test_no_reason_names_a_figure_that_is_not_measured():
    known = {
        (name, one["what"])
        for kind in results()
        for name, found in kind.items()
        for one in (found or {"figures": []})["figures"]
    }
    assert {figure for text in reasons.REASONS.values() for figure in reasons.figures_of(text)} <= known


def test_what_was_not_measured_is_said():
    text = render(dict.fromkeys(NAMES), {"http": None}, frozenset())
    assert f"Not measured: {', '.join([*NAMES, 'http'])}." in text
    assert "Not measured (`make bench-peers`)." in section(text, "### recovery")
    assert "Not measured (`python -m bench http`)." in section(text, "### http")
    assert "no comparison has a result" in section(text, "## Where Sluice is behind")


def test_a_chart_is_shown_only_where_there_is_one():
    link = "](../bench/results/peers/latency.svg)"
    assert link in render({"latency": PEER}, {}, frozenset({"latency"}))
    assert link not in render({"latency": PEER}, {}, frozenset())


def test_a_quick_run_says_that_it_is_one():
    assert "A quick run" in render({"latency": PEER | {"quick": True}}, {}, frozenset())


def test_results_keep_the_order_of_their_names_and_strangers_come_last(tmp_path: Path):
    for name in ("zebra", "ant", "known"):
        (tmp_path / f"{name}.json").write_text(json.dumps(PEER))
    (tmp_path / "other.json").write_text("[1, 2]")
    found = load(tmp_path, ["missing", "known"])
    assert list(found) == ["missing", "known", "ant", "zebra"]
    assert found["missing"] is None


def test_the_document_is_what_the_results_make_of_it():
    assert DOCUMENT.read_text() == document(), "run make performance"
