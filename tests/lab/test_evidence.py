"""What the lab gathers for its checker: rows as delta-rs finds them, answers, commits, services that died."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from tests.lab.checker import Checker
from tests.lab.client import TOPICS
from tests.lab.history import load
from tests.lab.nemeses import Nemeses
from tests.lab.producing import HEADERS, told_of
from tests.lab.report import Round
from tests.lab.runner import Guard, looks_at
from tests.lab.site import Site
from tests.lab.storage import Lake

CATALOG, OFFSETS = "topics/__cluster_metadata/0", "topics/__consumer_offsets/0"
Row = tuple[int, str | None, str | None]


def written(path: Path, rows: list[Row], header: str | None = None, **marks: int) -> None:
    """One commit with these rows: offset, key, value."""
    offsets, keys, values = zip(*rows, strict=True)
    named = [None if header is None else [{"key": "name", "value": header.encode()}] for _ in rows]
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.array([key and key.encode() for key in keys], pa.binary()),
        "value": pa.array([value and value.encode() for value in values], pa.binary()),
        "headers": pa.array(named, HEADERS),
    }
    marked = [Transaction(f"sluice.{name}", number) for name, number in marks.items()]
    write_deltalake(path, pa.table(columns), mode="append", commit_properties=CommitProperties(app_transactions=marked))


def catalog(root: Path, **configs: str) -> None:
    topic = {"folder": "topics/t", "partitions": [1], "configs": configs, "deleted_ms": None, "internal": False}
    written(root / CATALOG, [(0, json.dumps({"type": "topic", "name": "t", "id": "1"}), json.dumps(topic))])


def test_an_offset_in_two_rows_is_seen(tmp_path: Path) -> None:
    """As a merge leaves it that adds its output and keeps its input."""
    catalog(tmp_path)
    for _ in range(2):
        written(tmp_path / "topics/t/0", [(0, None, "p:0:0"), (1, None, "p:1:0")], end=2)
    stored = Lake(str(tmp_path)).stored()
    assert stored["t", 0].twice == [0, 1]
    assert "offset reused" in {anomaly.kind for anomaly in Checker([], stored).run()}


def test_tombstones_are_known_by_their_header(tmp_path: Path) -> None:
    catalog(tmp_path, **{"cleanup.policy": "compact"})
    written(tmp_path / "topics/t/0", [(3, '"k"', None)], header='"keyed-1.p1.0:4:2"', end=4, start=3)
    written(tmp_path / "topics/t/0", [(4, '"k"', None), (5, '"k"', "v")], end=6)
    table = Lake(str(tmp_path)).stored()["t", 0]
    assert (table.compacted, table.start, table.end) == (True, 3, 6)
    assert [table.name(offset) for offset in (3, 4, 5)] == ["keyed-1.p1.0:4:2", "", "v"]


@pytest.mark.parametrize(
    ("configs", "trims"), [({}, False), ({"retention.bytes": "9"}, True), (TOPICS["orders"], False)]
)
def test_only_topics_with_retention_by_size_may_be_trimmed(
    tmp_path: Path, configs: dict[str, str], trims: bool
) -> None:
    catalog(tmp_path, **configs)
    assert Lake(str(tmp_path)).stored()["t", 0].trims is trims


def test_commits_are_looked_at_in_storage(tmp_path: Path) -> None:
    """Nobody asks for them any more after the last recovery."""
    key = json.dumps({"type": "offset", "group": "bare", "topic": "t", "partition": 0})
    gone = json.dumps({"type": "offset", "group": "v2", "topic": "t", "partition": 0})
    rows: list[Row] = [(0, key, '{"offset":4}'), (1, key, '{"offset":3}'), (2, gone, '{"offset":1}'), (3, gone, None)]
    written(tmp_path / OFFSETS, [*rows, (4, '{"type":"group","group":"bare"}', "{}")])
    found = Lake(str(tmp_path)).committed()
    assert found == {"bare": [["t", 0, 3]]}
    began = {"t": 1.0, "who": "m.0", "do": "commit", "is": "invoke", "group": "bare", "generation": 1}
    events = [began | {"offsets": [["t", 0, offset]], "op": f"m.0#{offset}"} for offset in (3, 4)]
    events.append({"t": 2.0, "who": "m.0", "op": "m.0#4", "do": "commit", "is": "ok"})
    checker = Checker([*events, *looks_at(found, after=2.0)], {})
    assert [anomaly.kind for anomaly in checker.run()] == ["commit went back"]


def test_no_commits_at_all_are_none(tmp_path: Path) -> None:
    assert Lake(str(tmp_path)).committed() == {}


def test_what_an_answer_says_of_each_record() -> None:
    placed = {"error_code": None, "partition": 1, "offset": 7}
    entries = [placed, placed | {"offset": -1}, placed | {"error_code": 42201}, placed | {"error_code": 50302}]
    assert told_of(entries, "all") == {"at": [[1, 7], [-1, -1], None, [-1, -1]], "unplaced": [1]}
    assert told_of([placed | {"offset": -1}], "0") == {"at": [[1, -1]]}
    assert told_of([placed | {"error_code": 404}], "1") == {"at": [None]}


class Served:
    """A service that can be told to end, or crash."""

    def __init__(self, port: int, end: str = "exit code 0", *, hung: bool = False) -> None:
        self.port, self.end, self.hung = port, end, hung
        self.alive, self.told = True, False

    def signal(self, number: int) -> None:
        pass

    def kill(self) -> None:
        self.told, self.alive = self.told or self.alive, False

    def terminate(self) -> str:
        self.kill()
        return self.end

    def crash(self) -> None:
        self.alive = False


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Any]:
    found: Any = Site("folder", tmp_path, 1)
    found.front.start()
    (tmp_path / "service.log").write_text("why")
    found.services = [Served(1)]

    def start(*, force: bool = False) -> Served:
        found.services.append(Served(len(found.services) + 1))
        found.route()
        return found.services[-1]  # type: ignore[no-any-return]

    found.start = start
    yield found
    found.close()


def judged(site: Any) -> list[str]:
    result = Round("folder", 1, 1.0, [])
    Guard(site, result).check()
    assert site.services, "there is one to go on with"
    return [anomaly.kind for anomaly in result.anomalies]


def test_a_service_that_is_told_to_end_has_not_died(site: Any) -> None:
    nemeses = Nemeses(site, lambda: None)
    nemeses.do_kill(0.0)
    nemeses.do_take_over(0.0, "kill")
    nemeses.do_take_over(0.0, "term")
    assert judged(site) == []


def test_a_successor_that_dies_beside_its_predecessor_is_noticed(site: Any) -> None:
    nemeses: Any = Nemeses(site, lambda: None)
    nemeses._wait = lambda _: site.services[-1].crash()
    nemeses.do_take_over(0.0, "kill")
    assert judged(site) == ["service died"]


def test_a_loser_that_dies_when_it_is_fenced_is_noticed(site: Any) -> None:
    first, start = site.services[0], site.start

    def start_and_fence(*, force: bool = False) -> Any:
        first.crash()
        return start(force=force)

    site.start = start_and_fence
    Nemeses(site, lambda: None).do_take_over(0.0, "term")
    assert judged(site) == ["service died"]


@pytest.mark.parametrize("service", [Served(1, "exit code 1"), Served(1, hung=True)], ids=["code", "hung"])
def test_a_service_that_does_not_stop_in_order_is_noticed(site: Any, service: Served) -> None:
    site.services = [service]
    site.settle()
    assert judged(site) == ["service did not stop"]
    assert [event["end"] for event in load(site.history) if event["do"] == "stopped"] == [service.end, "exit code 0"]


def test_a_zombie_on_a_bucket_may_be_replaced_when_its_claim_has_lapsed(site: Any) -> None:
    forced: list[bool] = []
    start = site.start

    def starting(*, force: bool = False) -> Any:
        forced.append(force)
        return start(force=force)

    site.start = starting
    nemeses = Nemeses(site, lambda: None)
    nemeses.do_zombie(0.0, "kill", lapse=True)
    nemeses.do_zombie(0.0, "kill")
    assert forced == [False, True]
