"""Jobs on a bucket: no file lock, no shared clock with the last leader, and its WAL may lie on another machine."""

from __future__ import annotations

import pytest

from sluice.jobs.leases import Lease, LeaseHeld
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.clock import SystemClock
from sluice.log_store.errors import NotLeader
from tests.s3.bucket import Bucket
from tests.support.harness import settings_of
from tests.support.jobs import ran
from tests.support.logs import append, append_one_by_one, timed, values

HOUR = 3_600_000


def test_retention_and_deep_merge_offline(bucket: Bucket) -> None:
    now = SystemClock().wall_ms()
    log = bucket.lead()
    log.create_topic("old", configs={"retention.ms": HOUR})
    append(log, "old", 0, timed(now - 2 * HOUR))
    log.create_topic("deep", configs={"segment.bytes": 4_000, "retention.ms": -1})
    append_one_by_one(log, "deep", "abcdefghij")
    log.close()
    settings = settings_of(bucket.url, **bucket.changes("job"))

    first = ran("retention", bucket.url, settings=settings).report
    merged = ran("merge", bucket.url, settings=settings).report

    assert (first.outcome, first.mode, first.records) == (DONE, "offline", 1)
    assert merged.files_added < merged.files_removed
    assert ran("retention", bucket.url, settings=settings).report.outcome == NOTHING
    log = bucket.lead()
    assert values(log, "old") == []
    assert values(log, "deep") == [b"%c" % letter for letter in b"abcdefghij"]
    log.close()


def test_one_that_must_append_refuses_while_records_may_lie_in_the_wal_of_another_machine(bucket: Bucket) -> None:
    """R-2: the last leader did not stop in order."""
    log = bucket.lead()
    log.create_topic("t")
    append_one_by_one(log, "t", "a")
    log.close(drain=False)
    settings = settings_of(bucket.url, **bucket.changes("job"))
    with pytest.raises(NotLeader, match="start the service instead"):
        ran("offset-expiry", bucket.url, settings=settings)


def test_a_lease_on_a_bucket(bucket: Bucket) -> None:
    silent = Lease(bucket.store, SystemClock(), "job", renew_s=60.0, timeout_s=60.0)
    silent.acquire()
    with Lease(bucket.store, SystemClock(), "job", renew_s=0.1, timeout_s=0.8) as held:
        with pytest.raises(LeaseHeld):
            Lease(bucket.store, SystemClock(), "job", renew_s=0.1, timeout_s=60.0).acquire()
        held.check()
    silent.release()
