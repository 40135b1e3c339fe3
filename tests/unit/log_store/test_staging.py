"""Staged batches: pinned once, marked once, swept when nobody can come back for them."""

from __future__ import annotations

import pytest

from sluice.log_store import staging
from sluice.log_store.errors import CorruptData, InvalidRequest
from sluice.log_store.sinks import DAY_MS, KEPT_MS
from sluice.log_store.staging import Manifest, Part, PinnedTopic
from sluice.log_store.store import Listed, Store, open_store

NOW = 1_700_000_000_000
PART = Part("00000-0-x-00000.http.arrows", "t", 3, 10, 7)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def manifest(*parts: Part, query: str = "q", batch: int = 5) -> Manifest:
    return Manifest(query, batch, NOW, {"t": PinnedTopic("id", 4)}, parts)


def test_the_first_manifest_holds(store: Store) -> None:
    first = staging.pin(store, manifest(PART))
    other = manifest(Part("other.direct.arrows", "t", 1, 1, 1))
    assert staging.pin(store, other) == first == manifest(PART)
    assert staging.read_manifest(store, "q", 6) is None


def test_a_damaged_manifest_is_reported(store: Store) -> None:
    store.replace(f"{staging.batch_folder('q', 5)}/{staging.MANIFEST}", b'{"query":')
    with pytest.raises(CorruptData, match=r"manifest\.json is damaged"):
        staging.read_manifest(store, "q", 5)


def test_a_batch_that_is_done_leaves_its_mark_alone(store: Store) -> None:
    for batch in (9, 10, 11):
        store.replace(staging.part_path("q", batch, PART.name), b"rows")
        staging.pin(store, manifest(PART, batch=batch))
        staging.mark_done(store, "q", batch)
    assert staging.last_done(store, "q") == 11
    assert [item.name for item in store.list("_sluice/sinks/q")] == [f"{11:020d}.done"]
    assert store.list_folders(staging.STAGING) == []
    staging.mark_done(store, "q", 11)
    assert staging.last_done(store, "other") is None


def test_what_a_commit_named_is_not_dropped(store: Store) -> None:
    store.replace(staging.part_path("q", 5, PART.name), b"rows")
    staging.pin(store, manifest(PART))
    assert staging.drop(store, "q", 5) is False
    assert store.get(staging.part_path("q", 5, PART.name)) == b"rows"


@pytest.mark.parametrize(
    "wrong", ["", "manifest.json", "a.arrows", "../x.http.arrows", ".x.http.arrows", "a/b.http.arrows"]
)
def test_names_of_parts_cannot_lead_elsewhere(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="part"):
        staging.part_path("q", 0, wrong)


@pytest.mark.parametrize(
    ("names", "done", "age_ms", "gone"),
    [
        (["p"], False, DAY_MS - 1, False),
        (["p"], False, DAY_MS, True),
        (["p"], True, 0, True),
        (["p", staging.MANIFEST], False, KEPT_MS - 1, False),
        (["p", staging.MANIFEST], False, KEPT_MS, True),
        (["p", staging.MANIFEST], True, 0, True),
    ],
)
def test_what_may_be_half_appended_stays_as_long_as_partitions_remember(
    names: list[str], done: bool, age_ms: int, gone: bool
) -> None:
    listing = [Listed(name, 1, NOW - age_ms) for name in names]
    assert staging.abandoned(listing, "q", done, NOW, DAY_MS) is gone


def test_the_sweep_takes_the_old_and_leaves_the_new(store: Store) -> None:
    store.replace(staging.part_path("old", 0, PART.name), b"rows")
    staging.mark_done(store, "done", 3)
    store.replace(staging.part_path("done", 2, PART.name), b"of an attempt that came late")
    store.replace(staging.part_path("done", 4, PART.name), b"of the next batch")
    now = store.stat(staging.part_path("old", 0, PART.name)).modified_ms
    assert staging.sweep(store, now + 1000, DAY_MS) == 1
    assert store.list_folders(f"{staging.STAGING}/done") == [f"{4:020d}"]
    assert staging.sweep(store, now + DAY_MS + 60_000, DAY_MS) == 2
    assert store.list_folders(staging.STAGING) == []
    assert staging.last_done(store, "done") == 3
    assert staging.sweep(store, now + KEPT_MS + 60_000, DAY_MS) == 1
    assert staging.last_done(store, "done") is None
