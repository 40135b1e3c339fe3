"""The test double that fails on command must itself be trusted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.log_store.store import Store, StoreConflict, StoreError, StoreNotFound, open_store
from tests.support.faulty_store import FaultyStore


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory://"))


def test_without_faults_it_is_the_store_inside(store: FaultyStore) -> None:
    port: Store = store
    port.put("a/1", b"one")
    port.put_if_absent("a/2", b"two")
    port.replace("a/2", b"three")
    port.sync(["a/1", "a/2"])

    assert (port.get("a/1"), port.get_range("a/2", 1, 2), port.stat("a/2").size) == (b"one", b"hr", 5)
    assert port.open_input("a/2").read() == b"three"
    assert [item.name for item in port.list("a", "1")] == ["2"]
    assert port.list_folders("") == ["a"]
    port.delete("a/1")
    port.delete_folder("a")
    assert port.list("a") == []
    assert (port.url, port.local_path, port.delta_uri) == ("memory://", None, None)
    assert (port.delta_storage_options, port.durable_puts, port.fsync) == (None, False, False)
    assert len(store.counts) == 12
    assert {operation for operation, count in store.counts.items() if count != 1} == {"list"}
    assert store.calls[:2] == [("put", "a/1"), ("put_if_absent", "a/2")]


def test_fail_before_has_no_effect_and_happens_once(store: FaultyStore) -> None:
    fault = store.fail_before("put", "*.parquet")
    store.put("t/a.json", b"x")

    with pytest.raises(StoreError, match="injected before put"):
        store.put("t/a.parquet", b"x")
    with pytest.raises(StoreNotFound):
        store.get("t/a.parquet")
    store.put("t/a.parquet", b"x")

    assert fault.hits == 1
    assert store.counts["put"] == 3


def test_fail_after_is_applied(store: FaultyStore) -> None:
    store.fail_after("put_if_absent", lambda path: path.endswith("1.json"))

    with pytest.raises(StoreError, match="injected after"):
        store.put_if_absent("log/1.json", b"mine")

    assert store.get("log/1.json") == b"mine"


def test_an_own_error(store: FaultyStore) -> None:
    store.fail_before("get", error=StoreNotFound("a"))
    store.put("a", b"x")

    with pytest.raises(StoreNotFound):
        store.get("a")
    assert store.get("a") == b"x"


def test_conflict_storm(store: FaultyStore) -> None:
    store.conflict(times=3)

    for _ in range(3):
        with pytest.raises(StoreConflict):
            store.put_if_absent("a", b"x")
    store.put_if_absent("a", b"x")


def test_an_outage_lasts_until_it_is_cancelled(store: FaultyStore) -> None:
    outage = store.fail_before("*", times=None)
    for _ in range(5):
        with pytest.raises(StoreError):
            store.list("a")

    outage.cancel()

    assert store.list("a") == []
    assert outage.hits == 5


def test_faults_queue_up_and_can_be_cleared(store: FaultyStore) -> None:
    store.fail_before("get", error=StoreError("first"))
    store.fail_before("get", error=StoreError("second"))
    store.fail_before("get", error=StoreError("third"))

    for expected in ("first", "second"):
        with pytest.raises(StoreError, match=expected):
            store.get("a")
    store.clear()
    with pytest.raises(StoreNotFound):
        store.get("a")


def test_a_gate_before_holds_the_effect_back(store: FaultyStore) -> None:
    with ThreadPoolExecutor(1) as pool, store.gate("put", "a") as gate:
        writing = pool.submit(store.put, "a", b"x")
        gate.wait()
        assert store.list("") == []
        gate.release()
        writing.result(timeout=60)

    assert store.get("a") == b"x"


def test_a_gate_after_holds_the_answer_back(store: FaultyStore) -> None:
    with ThreadPoolExecutor(2) as pool, store.gate("put", when="after", times=2) as gate:
        writing = [pool.submit(store.put, name, b"x") for name in "ab"]
        gate.wait()
        gate.wait()
        assert [item.name for item in store.list("")] == ["a", "b"]
        assert not any(future.done() for future in writing)


def test_an_action_of_ones_own(store: FaultyStore) -> None:
    seen: list[str] = []
    store.on("put", seen.append, "t/*", when="after", times=None)

    store.put("t/1", b"x")
    store.put("u/1", b"x")

    assert seen == ["t/1"]
