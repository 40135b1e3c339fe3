"""A stop in order: the batch at work is finished and recorded, then the query ends, and with it its group membership.

Signals reach the job in two ways. `python -m sluice.streaming.consumer` gets them itself. Under spark-submit the
process that a supervisor knows is Spark's JVM, whose Python child would only see it vanish: so a hook of the JVM's
shutdown, which runs before Spark's own, asks for the stop here and waits for it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from sluice.streaming.spark.job_log import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RECORD_WITHIN_S = 10.0
"""How long Spark may take to record a batch after its target has it."""
LOOK_S = 0.05
HOOK_WITHIN_S = 600
HOOK_PRIORITY = 1_000
"""Higher than Spark's hooks, which stop the context (50) and delete files."""


class StopRequested(Exception):
    """Ends the query instead of a batch that had not begun."""


class StopGate:
    """Lets one batch through at a time, and none once a stop was asked for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requested = False
        self._busy = False
        self._refused = False
        self.last_batch = -1
        """The newest one whose target is written."""
        self.finished = threading.Event()
        """The job has nothing more to do."""
        self.exit_code = 0
        self.jvm_waits = False
        """The JVM is shutting down, as soon as the job has finished."""

    @property
    def requested(self) -> bool:
        return self._requested

    @property
    def refused(self) -> bool:
        """Has a batch been turned away? Then Spark has asked the source for more, and all before it is recorded."""
        return self._refused

    def request(self, why: str) -> None:
        with self._changed:
            if not self._requested:
                say("stopping", why=why, busy=self._busy)
            self._requested = True
            self._changed.notify_all()

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        with self._changed:
            if self._requested:
                self._refused = True
                self._changed.notify_all()
                raise StopRequested("the job is stopping")
            self._busy = True
        try:
            yield
            self.last_batch = number
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def wait_requested(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._requested, seconds)

    def wait_idle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)


def stop_in_order(query: StreamingQuery, gate: StopGate, recorded: Callable[[int], None]) -> None:
    """`recorded` is called with the last batch before the query ends: Spark tells its source that a batch is finished
    only when it asks for more, which may be hours away."""
    gate.wait_idle()
    pause = threading.Event()
    for _ in range(int(RECORD_WITHIN_S / LOOK_S)):
        if not query.isActive or gate.last_batch < 0:
            break
        if _recorded(query) >= gate.last_batch:
            recorded(gate.last_batch)
            break
        pause.wait(LOOK_S)
    query.stop()


def _recorded(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def stop_on_signals(gate: StopGate) -> None:
    """After the Spark session was made: Spark's own handler of Ctrl-C would cancel the batch."""

    def handle(number: int, _frame: object) -> None:
        gate.request(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


class _ShutdownHook:
    """A `java.lang.Runnable` that the JVM calls through Py4J."""

    def __init__(self, gate: StopGate) -> None:
        self._gate = gate

    def run(self) -> None:
        if not self._gate.finished.is_set():
            self._gate.jvm_waits = True
            self._gate.request("the JVM was told to stop")
            self._gate.finished.wait(HOOK_WITHIN_S)

    class Java:
        implements = ("java.lang.Runnable",)


def stop_with_jvm(spark: SparkSession, gate: StopGate) -> Callable[[], None]:
    """What is returned is to be called when the job has nothing more to do."""
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
    jvm: Any = context._jvm  # noqa: SLF001
    manager = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    # In a thread object, which is never started: it has the hashCode and equals that the manager asks for.
    hook = jvm.java.lang.Thread(_ShutdownHook(gate))
    manager.addShutdownHook(hook, HOOK_PRIORITY, HOOK_WITHIN_S, seconds)

    def end() -> None:
        with suppress(OSError, Py4JError):  # a JVM that halts does not live to answer
            if gate.jvm_waits:
                # It would exit with 143 whatever happened. But it has done what it was told, and says so.
                jvm.java.lang.Runtime.getRuntime().halt(gate.exit_code)
            else:
                manager.removeShutdownHook(hook)

    return end
