"""What goes wrong, done: one method for each kind of the plan. Each leaves the site with one service that works."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sluice.log_store.claims import RootLock
from tests.lab.front import while_set
from tests.lab.history import now
from tests.lab.plan import Step
from tests.lab.site import Site
from tests.lab.torn import tear_commit, tear_wal
from tests.support.faulty_proxy import Rule

PEACE_S = 1.0
"""Between two steps at least, however late it is: clients must get something done, or there is nothing to lose."""


class Nemeses:
    def __init__(self, site: Site, guard: Callable[[], None]) -> None:
        """`guard` is called before each step: the last one left everything in order."""
        self._site = site
        self._guard = guard
        self._wait = threading.Event().wait

    def run(self, steps: Sequence[Step], began: float, until: float) -> None:
        """In order. On a busy machine steps take longer, and the last ones are not reached."""
        for step in steps:
            self._wait(max(PEACE_S, began + step.at - now()))
            if now() > until:
                break
            self._guard()
            since = now()
            told = getattr(self, f"do_{step.kind.replace('-', '_')}")(**step.arguments)
            self._site.recorder.note("lab", "nemesis", kind=step.kind, since=since, told=told or "")

    # --- the service ----------------------------------------------------------------------------

    def _down(self) -> None:
        self._site.service.kill()
        self._site.route()

    def do_kill(self, seconds: float) -> None:
        self._down()
        self._wait(seconds)
        self._site.start()

    def do_kill_again(self, after: list[float]) -> None:
        """Also while it recovers, or just begins to serve."""
        self._down()
        for seconds in after:
            service = self._site.begin_service()
            self._wait(seconds)
            service.kill()
        self._site.start()

    def do_stop(self, seconds: float) -> None:
        self._site.service.signal(signal.SIGSTOP)
        self._wait(seconds)
        self._site.service.signal(signal.SIGCONT)

    def do_take_over(self, seconds: float, end: str) -> None:
        """A second service takes the leadership by force from one that is alive; clients reach both."""
        self._two(seconds, end, frozen=False)

    def do_zombie(self, seconds: float, end: str, lapse: bool = False) -> None:
        """The first one is frozen meanwhile, and wakes up beside its successor. That one may also wait until the claim
        has lapsed, where no lock of a folder stands in its way."""
        self._two(seconds, end, frozen=True, force=not lapse)

    def _two(self, seconds: float, end: str, *, frozen: bool, force: bool = True) -> None:
        site, first = self._site, self._site.service
        site.begin_two()
        if frozen:
            first.signal(signal.SIGSTOP)
        try:
            site.start(force=force)
            first.signal(signal.SIGCONT)
            self._wait(seconds)
        finally:
            first.signal(signal.SIGCONT)
        if end == "kill":
            first.kill()
        else:
            site.stop(first)
        site.route()
        site.end_two()

    def do_clock(self, seconds: float, jumps: list[int]) -> None:
        """There, somewhere else, and back; jumps of more than five minutes are confirmed by nobody (R-13)."""
        for jump in (*jumps, 0):
            self._site.wall.set(jump)
            self._wait(seconds)

    # --- files ----------------------------------------------------------------------------------

    def do_torn_wal(self, bytes: int, seed: int) -> str:
        return self._torn(lambda: tear_wal(self._site.wal, bytes, seed))

    def do_torn_commit(self, how: str, seed: int, what: str) -> str:
        """Or the data file that it names."""
        return self._torn(lambda: tear_commit(self._site.path, self._site.wal, how, seed, what))

    def _torn(self, tear: Callable[[], str]) -> str:
        """While nobody leads: an offline job that is alive would go on writing behind what was torn."""
        self._down()
        lock = RootLock(self._site.path)
        led = not lock.acquire()
        try:
            told = "a job leads: nothing was torn" if led else tear()
        finally:
            lock.release()
        self._site.start()
        return told

    def do_full(self, seconds: float, kill: bool) -> None:
        site = self._site
        assert site.disks is not None
        until = now() + seconds
        try:
            while now() < until:  # a service that gives up gives room back
                site.disks.fill(site.path)
                self._wait(0.05)
            if kill:
                self._down()
                site.disks.fill(site.path)
                half_way = site.begin_service()  # it recovers on the full disk, or says why not
                self._wait(2.0)
                half_way.kill()
        finally:
            site.disks.empty(site.path)
        if kill:
            site.restart()

    def do_read_only(self, seconds: float) -> None:
        site = self._site
        assert site.disks is not None
        site.disks.read_only(site.path)
        try:
            self._wait(seconds)
        finally:
            site.disks.writable(site.path)

    def do_store_fail(self, **what: Any) -> str:
        return self._store("fail", **what)

    def do_store_apply_and_fail(self, **what: Any) -> str:
        """The write is done, and whoever asked for it hears an error."""
        return self._store("apply-and-fail", **what)

    def do_store_slow(self, **what: Any) -> str:
        return self._store("slow", **what)

    def _store(self, how: str, seconds: float, **what: Any) -> str:
        faults = self._site.store_faults
        assert faults is not None
        before = faults.hits
        faults.set(how, **what)
        try:
            self._wait(seconds)
        finally:
            faults.clear()
        return f"{faults.hits - before} calls"

    # --- the network ----------------------------------------------------------------------------

    def do_cut(self, times: int) -> None:
        for _ in range(times):
            self._site.front.cut()
            self._wait(0.1)

    def do_slow_network(self, seconds: float, delay: float) -> None:
        while_set(self._site.front, "delay_s", delay, self._wait, seconds)

    def do_broken_network(self, seconds: float, share: float) -> None:
        while_set(self._site.front, "broken", share, self._wait, seconds)

    # --- the clients ----------------------------------------------------------------------------

    def do_kill_client(self, client: str) -> None:
        self._site.kill_clients(client)
        self._site.start_clients(client)

    def do_stop_client(self, client: str, seconds: float) -> None:
        self._site.signal_clients(client, signal.SIGSTOP)
        self._wait(seconds)
        self._site.signal_clients(client, signal.SIGCONT)

    # --- the bucket -----------------------------------------------------------------------------

    def _storm(self, rule: Callable[[], Rule], seconds: float) -> str:
        made = rule()
        self._wait(seconds)
        made.cancel()
        return f"{made.hits} requests"

    @property
    def _proxy(self) -> Any:
        assert self._site.proxy is not None
        return self._site.proxy

    def do_drop(self, seconds: float, match: str, chance: float) -> str:
        return self._storm(lambda: self._proxy.drop("PUT", match, times=None, chance=chance), seconds)

    def do_lose(self, seconds: float, match: str, chance: float) -> str:
        return self._storm(lambda: self._proxy.lose("PUT", match, times=None, chance=chance), seconds)

    def do_refuse(self, seconds: float, status: int, chance: float) -> str:
        return self._storm(lambda: self._proxy.answer(status, times=None, chance=chance), seconds)

    def do_apply_and_fail(self, seconds: float, status: int, chance: float) -> str:
        rule = lambda: self._proxy.answer(status, "PUT", times=None, chance=chance, after=True)  # noqa: E731
        return self._storm(rule, seconds)

    def do_delay(self, seconds: float, delay: float, chance: float) -> str:
        return self._storm(lambda: self._proxy.delay(delay, times=None, chance=chance), seconds)

    def do_hang(self, seconds: float, chance: float) -> str:
        return self._storm(lambda: self._proxy.hang(times=None, chance=chance), seconds)

    def do_outage(self, seconds: float) -> None:
        with self._proxy.outage():
            self._wait(seconds)
