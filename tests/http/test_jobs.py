"""Jobs beside a service that runs: they find it by its claim, and it commits for them (I-8, R-1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.jobs.__main__ import main
from sluice.jobs.cluster import OnlineCluster, open_cluster
from sluice.jobs.registry import MODULES
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.errors import InvalidRequest, PlanRefused, UnknownTopicId
from sluice.log_store.log_shape import LogShape
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.retention import decide_retention
from tests import counts
from tests.http.checks import V3
from tests.support.jobs import planned, ran
from tests.support.logs import eventually
from tests.support.server import Server, running

OLD_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"SLUICE_OFFSETS_RETENTION_MINUTES": "60", "SLUICE_MERGE_QUIET_MS": "600000"}
    with running(tmp_path_factory.mktemp("jobs") / "root", **settings) as server:
        yield server


def topic(server: Server, name: str, **configs: object) -> None:
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    answer = server.client.post(f"{V3}/topics", json={"topic_name": name, "partitions_count": 1, "configs": given})
    assert answer.status_code == 201, answer.text


def produce(server: Server, name: str, values: list[object], ms: int | None = None) -> None:
    for value in values:
        record = {"value": value} | ({} if ms is None else {"timestamp": ms})
        answer = server.client.post(f"/topics/{name}", json={"records": [record]})
        assert answer.status_code == 200, answer.text


def read(server: Server, name: str) -> tuple[int, list[object]]:
    answer = server.client.get(f"{V3}/topics/{name}/partitions/0/offset", params={"at": "earliest"}).json()
    start = answer["offset"]
    asked = {"offset": start, "format": "json", "max_records": 100_000}
    found = server.client.get(f"{V3}/topics/{name}/partitions/0/records", params=asked)
    return start, [row["value"] for row in found.json()["data"]]


def test_retention_over_http(server: Server) -> None:
    topic(server, "kept", segment_bytes=14, retention_ms=3_600_000)
    produce(server, "kept", [1, 2], OLD_MS)
    produce(server, "kept", [3])
    assert len(planned("retention", server.root, "--topic", "kept")) == 2

    report = ran("retention", server.root, "--topic", "kept").report

    assert (report.outcome, report.mode, report.leader) == (DONE, "online", server.url)
    assert (report.records, report.files_removed) == (2, 2)
    assert read(server, "kept") == (2, [3])
    gone = server.client.get(f"{V3}/topics/kept/partitions/0/records", params={"offset": 1})
    assert (gone.status_code, gone.json()["error"]) == (416, "OFFSET_OUT_OF_RANGE")
    assert ran("retention", server.root, "--topic", "kept").report.outcome == NOTHING


def test_deep_merge_over_http_keeps_every_record(server: Server) -> None:
    topic(server, "deep", segment_bytes=6_000)
    produce(server, "deep", list(range(20)))

    report = ran("merge", server.root, "--topic", "deep").report

    assert (report.outcome, report.mode) == (DONE, "online")
    assert report.files_added < report.files_removed
    assert read(server, "deep") == (0, list(range(20)))


def test_jobs_race_producers(server: Server) -> None:
    """I-8: nothing that was acknowledged is lost, and every plan is applied or made anew."""
    topic(server, "raced", segment_bytes=5_000, retention_ms=-1, retention_bytes=20_000)
    acked: list[int] = []
    stop = threading.Event()

    def produce_on() -> None:
        while not stop.is_set():
            body = {"records": [{"value": len(acked)}]}
            offset = server.client.post("/topics/raced/partitions/0", json=body).json()["offsets"][0]["offset"]
            assert offset == len(acked)
            acked.append(offset)

    producer = threading.Thread(target=produce_on)
    producer.start()
    try:
        for _ in range(counts.JOB_RACES):
            wanted = len(acked) + 20
            eventually(lambda wanted=wanted: len(acked) > wanted)  # type: ignore[misc]
            for job in ("merge", "retention"):
                assert ran(job, server.root, "--topic", "raced").report.outcome in (DONE, NOTHING)
    finally:
        stop.set()
        producer.join()
    start, values = read(server, "raced")
    assert start > 0
    assert values == acked[start:]


def test_vacuum_and_orphans_ask_the_leader(server: Server) -> None:
    topic(server, "swept")
    produce(server, "swept", [1])
    folder = server.root / "topics/swept/0"
    orphan = folder / f"{0:020d}-1-0rphan.parquet"
    orphan.write_bytes(b"x")
    os.utime(orphan, (1_700_000_000, 1_700_000_000))

    report = ran("orphans", server.root, "--topic", "swept").report

    assert (report.mode, report.files_removed, orphan.exists()) == ("online", 1, False)
    assert ran("vacuum", server.root, "--topic", "swept").report.outcome == NOTHING
    assert read(server, "swept") == (0, [1])


def test_offsets_expire_when_the_coordinator_says_so(server: Server) -> None:
    topic(server, "read")
    produce(server, "read", [1])
    body = {"offsets": [{"topic_name": "read", "partition_id": 0, "offset": 1}]}
    assert server.client.post(f"{V3}/consumer-groups/g/offsets", json=body).status_code == 200
    assert planned("offset-expiry", server.root) == []

    answer = server.client.post(f"{V3}/consumer-groups:expire")

    assert (answer.status_code, answer.json()) == (200, {"groups": 0, "offsets": 0})
    assert ran("offset-expiry", server.root).report.outcome == NOTHING


def test_a_plan_for_another_incarnation_is_refused(server: Server) -> None:
    """R-8: the topic was deleted and made again between plan and commit."""
    topic(server, "again", retention_ms=1)
    produce(server, "again", [1], OLD_MS)
    with open_cluster(str(server.root)) as cluster:
        target = cluster.targets(["again"])[0]
        log = LogShape.of(cluster.load(target.ref))
        decided = decide_retention(log, target.config, cluster.clock.wall_ms())
        assert decided is not None
        assert server.client.delete(f"{V3}/topics/again").status_code == 204
        topic(server, "again", retention_ms=1)
        produce(server, "again", [2], OLD_MS)

        with pytest.raises(UnknownTopicId):
            cluster.apply_plan(target.ref, decided.to_plan(log.version))
        with pytest.raises(UnknownTopicId):
            cluster.sweep(target.ref, orphans=False)

    assert read(server, "again") == (0, [2])


def test_a_refusal_and_a_repeat_over_http(server: Server) -> None:
    """R-7: what changed is told; the same plan id answers the same version."""
    topic(server, "planned")
    produce(server, "planned", [1, 2])
    with open_cluster(str(server.root)) as cluster:
        ref = cluster.targets(["planned"])[0].ref
        version = cluster.load(ref).version
        plan = Plan(plan_id="once", kind=PlanKind.RETENTION, reason="a test", base_version=version, log_start=1)
        first = cluster.apply_plan(ref, plan)
        assert cluster.apply_plan(ref, plan) == first == version + 1
        back = Plan(plan_id="back", kind=PlanKind.RETENTION, reason="a test", base_version=version, log_start=0)
        with pytest.raises(PlanRefused, match="may only rise"):
            cluster.apply_plan(ref, back)


def test_the_catalog_takes_plans_and_clients_still_do_not_see_it(server: Server) -> None:
    with open_cluster(str(server.root)) as cluster:
        ref = cluster.targets(["__cluster_metadata"])[0].ref
        version = cluster.load(ref).version
        plan = Plan(plan_id="meta", kind=PlanKind.RETENTION, reason="a test", base_version=version)
        assert cluster.apply_plan(ref, plan) > version
    for path in ("records?offset=0", "segments"):
        answer = server.client.get(f"{V3}/topics/__cluster_metadata/partitions/0/{path}")
        assert answer.status_code == 404, path


def test_a_server_of_another_cluster_is_refused(server: Server, tmp_path: Path) -> None:
    with running(tmp_path / "other") as other, pytest.raises(InvalidRequest, match="is not the leader of cluster"):
        open_cluster(str(server.root), server=other.url)


def test_a_dead_leader_is_replaced_by_the_job(tmp_path: Path) -> None:
    """R-1: its claim still stands, nobody answers at its address, and the lock of the root is free."""
    with running(tmp_path / "root") as server:
        topic(server, "t", retention_ms=1)
        produce(server, "t", [1], OLD_MS)
        server.kill()
        report = ran("retention", server.root).report
        assert (report.mode, report.records) == ("offline", 1)
        server.start()
        assert read(server, "t") == (1, [])


def test_the_wall_clock_is_compared_with_the_leaders(server: Server) -> None:
    """R-13: this machine believes that it is a year later."""
    ahead = ManualClock(SystemClock().wall_ms() + 365 * 86_400_000, SystemClock().boottime())
    with open_cluster(str(server.root), clock=ahead) as cluster:
        assert isinstance(cluster, OnlineCluster)
        assert not cluster.wall_trusted()
    with open_cluster(str(server.root)) as cluster:
        assert cluster.wall_trusted()
    assert server.client.get(f"{V3}/clock").json()["trusted"] is True
    assert server.client.post(f"{V3}/clock:confirm").json()["trusted"] is True


def _process(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=False)


def test_the_command_hands_over_arguments_and_exit_codes(server: Server) -> None:
    refused = _process("-m", "sluice.api", "jobs", "run", "retention", "--root", str(server.root), "--topic", "nope")
    assert (refused.returncode, refused.stderr) == (
        1,
        "sluice: retention failed: no topic matches nope (RESOURCE_NOT_FOUND)\n",
    )


def test_a_file_of_the_folder_is_a_program(server: Server) -> None:
    """As `spark-submit` and cron would start it."""
    topic(server, "scripted")
    produce(server, "scripted", [1])
    script = str(Path(__file__).parents[2] / "jobs" / "retention.py")
    done = _process(script, "--root", str(server.root), "--dry-run", "--json", "--topic", "scripted")
    assert (done.returncode, json.loads(done.stdout)["plan"]) == (0, [])


def test_usage_is_exit_code_2(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nothing"]) == 2
    assert "there is no job 'nothing'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as refused:
        main(["run", "retention", "--root", str(server.root), "--partition", "x"])
    assert refused.value.code == 2


def test_list_and_status(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    ran("vacuum", server.root)
    assert main(["list", "--json"]) == 0
    assert {row["job"] for row in json.loads(capsys.readouterr().out)} == set(MODULES)
    assert main(["status", "--root", str(server.root), "--json"]) == 0
    assert "vacuum" in {row["job"] for row in json.loads(capsys.readouterr().out)}
    assert main(["status", "vacuum", "--root", str(server.root)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["status", "--root", str(server.root / "nope")]) == 1
