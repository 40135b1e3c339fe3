"""Opening from storage: the newest good pair of snapshot and checkpoint, then every later version (I-6, R-5, R-8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice.log_store.checkpoints import clean_log
from sluice.log_store.delta_log import commit_path
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import CorruptCommit
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.snapshot import checkpoint_path, last_checkpoint, load, reload_needed, state_path
from sluice.log_store.store import open_store
from tests.support.logs import Cluster, append, append_one_by_one, batch, folder_cluster, stamp, values

FOLDER = "topics/t/0"


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_root) as made:
        yield made


def with_two_checkpoints(cluster: Cluster) -> tuple[LogStore, int, int]:
    log = cluster.open()
    log.create_topic("t")
    partition = log.partition("t", 0)
    append(log, "t", 0, batch("a"), stamp=stamp(2, 0))
    append_one_by_one(log, "t", "bc")
    first = partition.checkpoint()
    append(log, "t", 0, batch("d"), stamp=stamp(4, 0))
    second = partition.checkpoint()
    append_one_by_one(log, "t", "ef")
    return log, first, second


def same(found: PartitionState, live: PartitionState) -> None:
    """I-6: everything that counts is equal."""
    for name in ("version", "end", "log_start", "epoch", "files", "producers", "rolls", "active", "plans", "append_ms"):
        assert getattr(found, name) == getattr(live, name), name
    assert found.identity == live.identity


def test_a_missing_table_is_an_empty_partition() -> None:
    """R-8."""
    loaded = load(open_store("memory://"), "topics/nothing/0")

    assert not loaded.state.exists
    assert (loaded.state.end, loaded.problem, loaded.checkpoint) == (0, None, -1)


def test_from_the_newest_checkpoint_without_listing_the_log(cluster: Cluster) -> None:
    """I-6: snapshot, checkpoint, later versions; not one older version is read."""
    log, _, second = with_two_checkpoints(cluster)
    cluster.store.calls.clear()
    loaded = load(cluster.store, FOLDER)

    assert loaded.checkpoint == second
    same(loaded.state, log.partition("t", 0).state)
    read = [path for operation, path in cluster.store.calls if operation == "get" and path.endswith(".json")]
    assert read == [state_path(FOLDER, second), *(commit_path(FOLDER, second + n) for n in (1, 2, 3))]
    assert ("list", f"{FOLDER}/_delta_log") not in cluster.store.calls


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {"cut": cut, "empty": lambda _: b"", "zeros": lambda d: bytes(len(d))}


@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
@pytest.mark.parametrize("what", [state_path, checkpoint_path])
def test_an_older_pair_is_used_when_the_newest_is_damaged(
    cluster: Cluster, damage: str, what: Callable[[str, int], str]
) -> None:
    """I-6, R-5: a damaged snapshot or checkpoint costs a longer replay, nothing else."""
    log, first, second = with_two_checkpoints(cluster)
    path = what(FOLDER, second)
    if damage == "missing":
        cluster.store.delete(path)
    else:
        cluster.store.replace(path, DAMAGES[damage](cluster.store.get(path)))
    loaded = load(cluster.store, FOLDER)

    assert (loaded.checkpoint, loaded.problem) == (first, None)
    same(loaded.state, log.partition("t", 0).state)


def test_no_flipped_bit_of_a_checkpoint_goes_unseen(cluster: Cluster) -> None:
    """I-6, I-10: wherever it is, the state is the right one: the flip did not matter, or an older pair was used."""
    log, _, second = with_two_checkpoints(cluster)
    path, live = checkpoint_path(FOLDER, second), log.partition("t", 0).state
    data = cluster.store.get(path)
    for position in range(0, len(data), max(1, len(data) // 150)):
        flipped = bytes([data[position] ^ 1 << position % 8])
        cluster.store.replace(path, data[:position] + flipped + data[position + 1 :])
        same(load(cluster.store, FOLDER).state, live)


def test_a_flipped_bit_in_the_snapshot(cluster: Cluster) -> None:
    """R-5: its checksum tells."""
    _, first, second = with_two_checkpoints(cluster)
    path = state_path(FOLDER, second)
    cluster.store.replace(path, flip(cluster.store.get(path)))
    assert load(cluster.store, FOLDER).checkpoint == first


def test_a_snapshot_of_another_version_is_not_believed(cluster: Cluster) -> None:
    """R-5: pair and version belong together."""
    _, first, second = with_two_checkpoints(cluster)
    cluster.store.replace(state_path(FOLDER, second), cluster.store.get(state_path(FOLDER, first)))
    assert load(cluster.store, FOLDER).checkpoint == first


def test_without_any_good_pair_the_log_is_replayed_from_0(cluster: Cluster) -> None:
    """I-6: as long as the versions are there."""
    log, first, second = with_two_checkpoints(cluster)
    for version in (first, second):
        cluster.store.replace(state_path(FOLDER, version), b"garbage")
    loaded = load(cluster.store, FOLDER)

    assert loaded.checkpoint == -1
    same(loaded.state, log.partition("t", 0).state)


@pytest.mark.parametrize("hint", [b"", b"{", b"[]", b'{"version":"x"}', b'{"version":99}'])
def test_the_hint_is_only_a_hint(cluster: Cluster, hint: bytes) -> None:
    log, _, second = with_two_checkpoints(cluster)
    cluster.store.replace(f"{FOLDER}/_delta_log/_last_checkpoint", hint)
    loaded = load(cluster.store, FOLDER)

    assert loaded.checkpoint == second
    same(loaded.state, log.partition("t", 0).state)


def test_a_hint_that_was_set_back_is_not_believed(cluster: Cluster) -> None:
    """R-3: a leader that was stopped while it wrote a checkpoint sets it back when it comes to life."""
    _, first, second = with_two_checkpoints(cluster)
    cluster.store.replace(f"{FOLDER}/_delta_log/_last_checkpoint", b'{"version":%d}' % first)
    assert load(cluster.store, FOLDER).checkpoint == second


def test_a_damaged_version_stops_the_replay_with_a_reason(cluster: Cluster) -> None:
    """I-10: never skipped, never silent."""
    log, _, second = with_two_checkpoints(cluster)
    path = commit_path(FOLDER, second + 2)
    cluster.store.replace(path, cut(cluster.store.get(path)))
    loaded = load(cluster.store, FOLDER)

    assert loaded.state.version == second + 1
    assert isinstance(loaded.problem, CorruptCommit)
    assert f"version {second + 2}" in loaded.problem.message
    assert log.partition("t", 0).state.version == second + 2


def test_who_needs_to_load_anew(cluster: Cluster) -> None:
    _, _, second = with_two_checkpoints(cluster)
    assert last_checkpoint(cluster.store, FOLDER) == second
    assert reload_needed(cluster.store, FOLDER, PartitionState(version=second - 1))
    assert not reload_needed(cluster.store, FOLDER, PartitionState(version=second))


def test_a_fenced_process_follows_a_log_that_was_cleaned_although_it_set_the_hint_back(cluster: Cluster) -> None:
    """R-3: it was stopped while it wrote a checkpoint, and came to life when the log had gone on without it."""
    old, *_ = with_two_checkpoints(cluster)
    hint = f"{FOLDER}/_delta_log/_last_checkpoint"
    its_own = cluster.store.get(hint)
    new = cluster.open(force=True)
    for text in "gh":
        append(new, "t", 0, batch(text))
        newest = new.partition("t", 0).checkpoint()
    clean_log(cluster.store, FOLDER, older_than_ms=2**62, synced_version=newest)
    assert old.partition("t", 0).state.version < newest
    cluster.store.replace(hint, its_own)
    old.runtime.leadership.fence("a test")

    assert values(old, "t") == values(new, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]


def test_a_reopened_service_goes_on(cluster: Cluster) -> None:
    """I-6: also its producer windows."""
    with_two_checkpoints(cluster)
    log = cluster.reopen()

    assert values(log, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert append(log, "t", 0, batch("a"), stamp=stamp(2, 0)).duplicate
    assert append(log, "t", 0, batch("d"), stamp=stamp(4, 0)).base_offset == 3
    assert append(log, "t", 0, batch("g")).base_offset == 6
