"""What every store promises to many callers at once."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

from sluice.log_store.store import Store, StoreConflict, StoreNotFound


def names(store: Store, folder: str) -> list[str]:
    return [item.name for item in store.list(folder)]


def test_put_if_absent_has_one_winner_per_key(store: Store) -> None:
    """I-2: 32 threads race for each of 50 keys."""
    racers, keys = 32, 50
    start = threading.Barrier(racers)

    def race(racer: int) -> list[int]:
        won = []
        for key in range(keys):
            start.wait(timeout=60)
            try:
                store.put_if_absent(f"log/{key:020d}.json", b"%d|" % racer * 200)
                won.append(key)
            except StoreConflict:
                pass
        return won

    with ThreadPoolExecutor(racers) as pool:
        wins = list(pool.map(race, range(racers)))

    winners = {key: racer for racer, won in enumerate(wins) for key in won}
    assert sum(map(len, wins)) == keys == len(winners)
    for key, racer in winners.items():
        assert store.get(f"log/{key:020d}.json") == b"%d|" % racer * 200
    assert names(store, "log") == [f"{key:020d}.json" for key in range(keys)]


def watch(store: Store, path: str, until: threading.Event) -> set[bytes]:
    seen = set()
    while not until.is_set():
        try:
            seen.add(store.get(path))
        except StoreNotFound:
            seen.add(b"absent")
    return seen


def test_put_if_absent_is_whole_or_absent(store: Store) -> None:
    parts = [b"x" * 4096] * 300
    done = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        watchers = [pool.submit(watch, store, "a/0", done) for _ in range(2)]
        try:
            for _ in range(30):
                store.put_if_absent("a/0", parts)
                store.delete("a/0")
        finally:
            done.set()

    assert set().union(*(watcher.result() for watcher in watchers)) <= {b"absent", b"".join(parts)}


def test_replace_shows_the_old_or_the_new(store: Store) -> None:
    versions = [bytes([65 + i]) * (100_000 + i * 50_000) for i in range(4)]
    store.replace("a/hint", versions[0])
    done = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        watchers = [pool.submit(watch, store, "a/hint", done) for _ in range(2)]
        try:
            for version in itertools.islice(itertools.cycle(versions), 60):
                store.replace("a/hint", version)
        finally:
            done.set()

    assert set().union(*(watcher.result() for watcher in watchers)) <= set(versions)
    assert names(store, "a") == ["hint"]
