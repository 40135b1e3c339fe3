"""A checkpoint that cannot be written is not tried at every commit: each try reads all commits since the last one."""

from __future__ import annotations

from pathlib import Path

from sluice.log_store.durability import RETRY_SHARE
from tests.support.logs import append_one_by_one, eventually, folder_cluster


def test_a_failed_checkpoint_waits_for_a_tenth_of_the_interval(tmp_path: Path) -> None:
    interval = 3 * RETRY_SHARE
    with folder_cluster(tmp_path, checkpoint_interval_versions=interval) as cluster:
        log = cluster.open()
        log.create_topic("t")
        failing = cluster.store.fail_before("put_if_absent", "*/t/0/_sluice/state-*", times=None)
        append_one_by_one(log, "t", map(str, range(interval - 1)))  # the claim makes it a whole interval
        eventually(lambda: failing.hits == 1)
        durability = log.partition("t", 0).durability
        eventually(lambda: not durability._checkpointing)
        append_one_by_one(log, "t", ["a", "b"])
        assert not durability._checkpointing
        assert failing.hits == 1
        failing.cancel()
        append_one_by_one(log, "t", ["c"])
        eventually(lambda: durability.checkpointed >= interval)
