"""The service compacts its own topics, and starts again from what is left, after any end."""

from __future__ import annotations

from pathlib import Path

import httpx

from sluice.log_store.engine import LogStore
from sluice.log_store.snapshot import load
from sluice.log_store.store import open_store
from tests.support.group_http import committed
from tests.support.logs import eventually, small_settings
from tests.support.server import running

GROUPS = "/v3/clusters/-/consumer-groups"
SMALL = {"cleanup.policy": "compact", "segment.bytes": 4_000, "min.cleanable.dirty.ratio": 0}
COMMITS = 40


def commit(http: httpx.Client, group: str, offset: int) -> None:
    row = {"topic_name": "t", "partition_id": 0, "offset": offset}
    answer = http.post(f"{GROUPS}/{group}/offsets", json={"offsets": [row]})
    assert answer.status_code == 200, answer.text


def test_committed_offsets_outlive_compaction_and_kill_9(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with LogStore.open(small_settings(str(root), topics_num_partitions=1)) as log:
        log.internal_topic("__consumer_offsets", partitions=1, configs=SMALL)
        log.create_topic("t")
        log.create_topic("compacted", configs=SMALL)
        folder = log.partition("__consumer_offsets", 0).ref.folder
        other = log.partition("compacted", 0).ref.folder
    with running(root, SLUICE_MERGE_QUIET_MS="100") as server:
        for n in range(COMMITS):
            for group in ("busy", f"once-{n % 5}"):
                commit(server.client, group, n)
            sent = {"records": [{"key": f"k{n % 3}", "value": n}]}
            assert server.client.post("/topics/compacted", json=sent).status_code == 200
        store = open_store(root)
        eventually(lambda: load(store, folder).state.last_cleaning >= 0)
        eventually(lambda: load(store, other).state.last_cleaning >= 0)
        wanted = {group: committed(server.client, group) for group in ("busy", *(f"once-{n}" for n in range(5)))}
        assert wanted["busy"] == {("t", 0): COMMITS - 1}
        before = _read(server.client)
        assert {key: value for key, value in before if key} == {f"k{n}": max(range(n, COMMITS, 3)) for n in range(3)}

        server.kill()
        server.start()

        assert {group: committed(server.client, group) for group in wanted} == wanted
        assert _read(server.client)[-3:] == before[-3:]
        left = sum(file.records for file in load(store, folder).state.files)
        assert left < 2 * COMMITS
        commit(server.client, "busy", 7)
        assert committed(server.client, "busy") == {("t", 0): 7}


def _read(http: httpx.Client) -> list[tuple[str, int]]:
    """(key, value) of all records, fetched a few at a time, over the gaps."""
    found, offset = [], 0
    while True:
        path = f"/v3/clusters/-/topics/compacted/partitions/0/records?offset={offset}&max_records=7"
        answer = http.get(path).json()
        found += [(record["key"], record["value"]) for record in answer["data"]]
        offset = answer["next_offset"]
        if offset >= answer["high_watermark"]:
            return found
