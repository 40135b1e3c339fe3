"""Rounds one after the other, each on a new root: clients, nemeses, an end in order, and the checker's verdict."""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.disk.disks import why_not
from tests.lab.administering import verified
from tests.lab.checker import Checker
from tests.lab.clients import SETS
from tests.lab.facts import Anomaly, Event
from tests.lab.grouping import GROUPS
from tests.lab.history import load, now
from tests.lab.nemeses import Nemeses
from tests.lab.plan import QUIET_S, schedule
from tests.lab.report import Report, Round
from tests.lab.service import Refused
from tests.lab.site import HereDisks, Site
from tests.lab.storage import copied, set_aside
from tests.support.faulty_proxy import faulty_proxy
from tests.support.s3_server import S3Server, s3_server

LONGEST_ROUND_S = 150.0
SPARK_FROM_S = 100.0
"""A Spark job needs most of a minute to start, to be killed and to start again."""
INSIDE = "LAB_HAS_ITS_OWN_MOUNTS"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    seed: int
    seconds: float
    sites: tuple[str, ...]
    folder: Path
    spark: bool = True
    keep: bool = False


def own_mounts() -> None:
    """Start over in a mount namespace of our own, if this machine allows it."""
    if os.environ.get(INSIDE) or why_not():
        return
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.lab", *sys.argv[1:]]
    os.execvpe(command[0], command, os.environ | {INSIDE: "1"})


def torture(wish: Wish, tell: Tell) -> Report:
    began = now()
    reasons = _left_out(wish)
    sites = [site for site in wish.sites if site not in reasons]
    if "disk" in wish.sites and "disk" in reasons:
        sites.insert(0, "folder")
    report = Report(wish.seed, wish.seconds, [f"{site}: {reason}" for site, reason in reasons.items()])
    for line in report.left_out:
        tell(f"left out: {line}")
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(wish.folder / "s3")) if "bucket" in sites else None
        for number, (site, seconds) in enumerate(rounds_of(wish.seconds, sites)):
            seed = wish.seed if number == 0 else random.Random(f"{wish.seed}/{number}").randrange(1 << 31)
            folder = wish.folder / f"round-{number}"
            report.rounds.append(one_round(site, folder, seed, seconds, server, tell, spark=wish.spark))
            if not (report.rounds[-1].anomalies or wish.keep):
                shutil.rmtree(folder, ignore_errors=True)
    report.seconds = now() - began
    return report


def rounds_of(seconds: float, sites: list[str]) -> list[tuple[str, float]]:
    """The sites in turn, each round as long as the others."""
    count = max(len(sites), -(-round(seconds) // round(LONGEST_ROUND_S)))
    return [(sites[number % len(sites)], seconds / count) for number in range(count)]


def _left_out(wish: Wish) -> dict[str, str]:
    found = {}
    if "disk" in wish.sites and not os.environ.get(INSIDE):
        found["disk"] = f"this machine does not let us mount a small file system: {why_not() or 'not asked to'}"
    if "bucket" in wish.sites and shutil.which("java") is None:
        found["bucket"] = "the S3 test server needs Java"
    return found


def one_round(
    kind: str, folder: Path, seed: int, seconds: float, server: S3Server | None, tell: Tell, *, spark: bool
) -> Round:
    steps = schedule(seed, seconds, kind)
    result = Round(kind, seed, seconds, [str(step) for step in steps])
    tell(f"round on a {kind}: seed {seed}, {seconds:.0f} s")
    for line in result.steps:
        tell(line)
    with _site(kind, folder, seed, seconds, server) as site:
        try:
            _play(site, result, seconds, with_spark=spark and kind != "bucket" and seconds >= SPARK_FROM_S)
            _judge(site, result)
        except Refused as error:
            result.anomalies.append(Anomaly("service refused to start", "", -1, -1, str(error)))
            result.count(load(site.history))
        if result.anomalies and site.disks is not None:
            shutil.copytree(site.path, folder / "root-kept", dirs_exist_ok=True)  # the disk goes with this process
    tell(f"round is over: {len(result.anomalies)} anomalies")
    return result


@contextmanager
def _site(kind: str, folder: Path, seed: int, seconds: float, server: S3Server | None) -> Iterator[Site]:
    with ExitStack() as stack:
        if kind == "bucket":
            assert server is not None
            proxy = stack.enter_context(faulty_proxy(server.port, seed))
            options = server.options_at(proxy.endpoint)
            settings = {f"SLUICE_S3_{key.upper()}": value for key, value in options.items()}
            settings |= {"SLUICE_WAL_DIR": str(folder / "wal"), "SLUICE_STORAGE_REQUEST_TIMEOUT_MS": "3000"}
            root = f"{server.bucket('lab')}/{folder.name}-{seed}"
            site = Site(kind, folder, seed, root=root, settings=settings, options=server.options, proxy=proxy)
        else:
            disks = HereDisks() if kind == "disk" else None
            site = Site(kind, folder, seed, disks=disks)
            site.path.mkdir()
            if disks is not None:
                disks.mount_tmpfs(site.path, min(640, 160 + 2 * round(seconds)))
                stack.callback(disks.unmount, site.path)
        stack.callback(site.close)
        yield site


def _play(site: Site, result: Round, seconds: float, *, with_spark: bool) -> None:
    site.front.start()
    site.start()
    site.create_topics()
    for name in (*SETS, "spark") if with_spark else SETS:
        site.start_clients(name)
    site.wait_for_work()
    began = now()
    guard = Guard(site, result)
    Nemeses(site, guard.check).run(schedule(result.seed, seconds, site.kind), began, began + seconds - QUIET_S)
    guard.check()
    site.heal()
    threading.Event().wait(max(QUIET_S, began + seconds - now()))
    site.end_clients()
    guard.check()
    site.settle()
    guard.judge()


class Guard:
    """A service ends when it is told to, and not otherwise."""

    def __init__(self, site: Site, result: Round) -> None:
        self._site, self._result = site, result

    def check(self) -> None:
        self.judge()
        if not self._site.services:
            self._site.start()

    def judge(self) -> None:
        self._site.route()
        for service in self._site.died:
            what = f"{service.end or 'killed'}: {(self._site.folder / 'service.log').read_text()[-800:]}"
            self._result.anomalies.append(Anomaly("service died", "", -1, -1, what))
        self._site.died.clear()
        for told in self._site.unruly:
            self._result.anomalies.append(Anomaly("service did not stop", "", -1, -1, told))
        self._site.unruly.clear()


def _judge(site: Site, result: Round) -> None:
    events = load(site.history)
    result.count(events)
    events += looks_at(site.lake.committed(), after=events[-1]["t"])
    copies = copied(site.folder / "copies")
    checker = Checker(events, site.lake.stored(), aside=set_aside(site.wal), copies=copies)
    result.anomalies += checker.run()
    result.allowed, result.looked, result.waited_s = checker.allowed, checker.looked, checker.waited_s
    if told := verified(site.root, site.settings):
        result.anomalies.append(Anomaly("verify job", "", -1, -1, told))


def looks_at(committed: Mapping[str, list[list[Any]]], after: float) -> Iterator[Event]:
    """What the groups have in storage in the end, as if somebody had asked for it."""
    for group in GROUPS:
        head = {"t": after + 1, "who": "storage.0", "op": f"storage.0#{group}", "do": "committed"}
        yield head | {"is": "invoke", "group": group}
        yield head | {"t": after + 2, "is": "ok", "offsets": committed.get(group, [])}
