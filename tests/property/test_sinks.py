"""The append of a sink's batches, crashed anywhere and repeated with other parts, against a simple model.

The model: whatever happens on the way, a batch whose commit was answered is in the log once, all of it, where the first
manifest put it. Spark may run the tasks of a batch anew, with the rows in another order and over other parts.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.api import sinks_append
from sluice.api.sinks_append import SinkBatch
from sluice.ingest.hooks import HookLoader
from sluice.ingest.limits import IngestLimits
from sluice.log_store import staging, steps
from sluice.log_store.engine import LogStore
from sluice.log_store.staging import Part
from tests import counts
from tests.support.logs import Cluster, memory_cluster, values
from tests.support.sinks import rows_of, staged

QUERY = "q"
STEPS = ("sink-pinned", "accepted", "sink-piece", "sink-done")
HOOKS = HookLoader(())


class Crash(Exception):
    """The process ends here."""


class Crashing:
    """Ends the work when it has met so many of the named steps."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self, step: str) -> None:
        if step in STEPS:
            self._left -= 1
            if self._left == 0:
                raise Crash(step)


@st.composite
def tries(draw: st.DrawFn) -> list[tuple[int, int, int, bool]]:
    """(steps until the crash, seed of the order of the rows, rows of a part, whether the topic grows before it)"""
    one = st.tuples(st.integers(1, 25), st.integers(0, 9), st.integers(1, 7), st.booleans())
    return draw(st.lists(one, max_size=4))


class Model:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log = cluster.open()
        self.partitions = 2
        self.attempts = 0
        self.log.create_topic("t", partitions=self.partitions)

    def parts(self, batch: int, texts: list[str], seed: int, rows: int) -> list[Part]:
        """As a new attempt of all tasks leaves them."""
        self.attempts += 1
        turned = texts[seed % len(texts) :] + texts[: seed % len(texts)]
        keys = [text if int(text.partition("-")[2]) % 3 == 0 else None for text in turned]
        cuts = range(0, len(turned), rows)
        return [
            staged(
                self.log.runtime.store,
                QUERY,
                batch,
                "t",
                rows_of(turned[at : at + rows], keys[at : at + rows]),
                f"{self.attempts}-{at:05d}",
            )
            for at in cuts
        ]

    def commit(self, log: LogStore, batch: int, parts: list[Part]) -> int:
        return SinkBatch(log, HOOKS, IngestLimits(), QUERY, batch).commit(parts).count

    def crashed(self, batch: int, parts: list[Part], after: int) -> bool:
        """Whether it came to the crash; a new process leads afterwards."""
        steps.set_hook(Crashing(after))
        try:
            self.commit(self.log, batch, parts)
        except Crash:
            return True
        finally:
            steps.set_hook(None)
            self.log = self.cluster.crash()
        return False

    def grow(self) -> None:
        self.partitions += 1
        self.log.grow_topic("t", self.partitions)

    def rows(self) -> list[list[str]]:
        found = [values(self.log, "t", number) for number in range(self.partitions)]
        return [[(value or b"").decode() for value in partition] for partition in found]


@given(
    batches=st.lists(st.tuples(st.integers(1, 30), tries()), min_size=1, max_size=3), kept=st.sampled_from([0, 1 << 25])
)
@settings(max_examples=counts.SINK_CRASHES)
def test_a_batch_is_in_the_log_once_wherever_its_commit_was_cut(
    batches: list[tuple[int, list[tuple[int, int, int, bool]]]], kept: int
) -> None:
    whole, sinks_append.KEPT_BYTES = sinks_append.KEPT_BYTES, kept
    try:
        with memory_cluster() as cluster:
            model = Model(cluster)
            expected: Counter[str] = Counter()
            for batch, (count, crashes) in enumerate(batches):
                texts = [f"{batch}-{row}" for row in range(count)]
                for after, seed, rows, grows in crashes:
                    model.crashed(batch, model.parts(batch, texts, seed, rows), after)
                    if grows:
                        model.grow()
                model.commit(model.log, batch, model.parts(batch, texts, 3, 5))
                expected.update(texts)
                assert Counter(chain(*model.rows())) == expected
                before = model.rows()
                assert model.commit(model.log, batch, model.parts(batch, texts, 1, 2)) == 0
                assert model.rows() == before
            assert staging.last_done(cluster.store, QUERY) == len(batches) - 1
            assert cluster.store.list_folders(staging.STAGING) == []
    finally:
        sinks_append.KEPT_BYTES = whole


@given(count=st.integers(2, 30), after=st.integers(2, 12), rows=st.integers(1, 5), seed=st.integers(0, 9))
@settings(max_examples=counts.SINK_CRASHES)
def test_rows_go_where_the_first_try_put_them(count: int, after: int, rows: int, seed: int) -> None:
    """Also when the topic has grown since, and the repeat brings its rows in another order."""
    texts = [f"0-{row}" for row in range(count)]
    with memory_cluster() as undisturbed:
        model = Model(undisturbed)
        model.commit(model.log, 0, model.parts(0, texts, seed, rows))
        expected = model.rows()
    with memory_cluster() as cluster:
        model = Model(cluster)
        model.crashed(0, model.parts(0, texts, seed, rows), after)
        model.grow()
        model.commit(model.log, 0, model.parts(0, texts, seed + 1, rows + 1))
        assert model.rows() == [*expected, []]
