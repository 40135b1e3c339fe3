"""kill -9 of a real service while it appends batches of a sink: each is in the log once, whoever has to repeat it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import httpx

from sluice.log_store import staging
from sluice.log_store.staging import Part
from sluice.log_store.store import Store, open_store
from tests import counts
from tests.http.checks import V3, fetch
from tests.support.server import Server, running
from tests.support.sinks import commit, rows_of, staged

QUERY, TOPIC, PARTITIONS, ROWS = "3f0c7e54", "t", 3, 40
STEPS = (
    ("sink-pinned", 1),
    ("accepted", 12),
    ("logged", 12),
    ("data-file-put", 8),
    ("before-commit", 8),
    ("after-commit", 8),
    ("sink-piece", 8),
    ("sink-done", 1),
)
OURS = ("sink-piece", 3)
"""No recovery and no merge comes by here."""


def attempt(store: Store, batch: int, texts: list[str], dice: random.Random) -> list[Part]:
    """What the tasks of the batch leave when they run anew: the same rows in another order, over other parts."""
    rows, size = dice.sample(texts, len(texts)), dice.randrange(3, 9)
    cuts = range(0, len(rows), size)
    name = f"{dice.getrandbits(64):016x}"
    return [staged(store, QUERY, batch, TOPIC, rows_of(rows[at : at + size]), f"{name}-{at:05d}") for at in cuts]


def restart(server: Server, step: str, times: int) -> None:
    """To be killed at a step. Some are met by the recovery as well: then it dies before it serves, and starts again."""
    server.arm(step, times)
    try:
        server.start()
    except AssertionError:
        server.wait()
        server.arm(*OURS)
        server.start()


def answered(server: Server, batch: int, parts: list[Part]) -> bool:
    try:
        response = commit(server.client, QUERY, batch, parts)
    except httpx.TransportError:
        return False
    assert response.status_code == 200, response.text
    return True


def found(server: Server) -> Counter[str]:
    try:
        return read(server)
    except httpx.TransportError:  # a merge has met the step that was for the sink
        server.wait()
        restart(server, *OURS)
        return read(server)


def read(server: Server) -> Counter[str]:
    pages = [fetch(server.client, TOPIC, partition=p, max_records=100_000, format="string") for p in range(PARTITIONS)]
    return Counter(record["value"] for page in pages for record in page["data"])


def test_every_batch_is_in_the_log_once(tmp_path: Path) -> None:
    """R-5: the entry comes with the rows, in commit, WAL and state; the repeat completes what is half appended."""
    dice, kills, batch = random.Random(7), 0, 0
    expected: Counter[str] = Counter()
    with running(tmp_path / "root") as server:
        store = open_store(tmp_path / "root", fsync=False)
        created = server.client.post(f"{V3}/topics", json={"topic_name": TOPIC, "partitions_count": PARTITIONS})
        assert created.status_code == 201
        while kills < counts.SINK_KILLS:
            texts = [f"{batch}-{row}" for row in range(ROWS)]
            while not answered(server, batch, attempt(store, batch, texts, dice)):
                server.wait()
                kills += 1
                step, most = dice.choice(STEPS)
                restart(server, step, dice.randrange(1, most + 1))
            expected.update(texts)
            batch += 1
            if kills == 0:
                server.kill()
                restart(server, *OURS)
            if batch % 3 == 0:
                assert found(server) == expected
        server.kill()
        restart(server, "none", 1)
        assert found(server) == expected
        assert answered(server, batch - 1, attempt(store, batch - 1, ["twice"], dice))
        assert found(server) == expected
        assert staging.last_done(store, QUERY) == batch - 1
