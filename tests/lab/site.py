"""Where a round takes place: a root, the services on it, the address that clients know, and the clients themselves."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from tests.disk.disks import Disks
from tests.lab.client import CLUSTER, PARTITIONS, TOPICS
from tests.lab.front import Front
from tests.lab.history import Recorder, now
from tests.lab.nursery import Child, Nursery
from tests.lab.service import Refused, ServiceProcess, Wall
from tests.lab.storage import Lake
from tests.lab.store_faults import StoreFaults
from tests.support.faulty_proxy import FaultyProxy

COMES_BACK_S = 300.0
"""Long enough for a busy machine: that a service comes back at all is asked, not how soon."""
CLIENTS_END_S = 60.0


class HereDisks(Disks):
    """Small file systems in the mount namespace that this very process is in."""

    def __init__(self) -> None:
        pass

    def within(self, folder: Path) -> list[str]:
        return ["env", "-C", str(folder)]

    def seen(self, path: Path) -> Path:
        return path

    def unmount(self, at: Path) -> None:
        # Readers may have files open there; what they open next is looked up anew.
        self.run("umount", "--lazy", str(at))

    def close(self) -> None:
        pass


class Site:
    def __init__(
        self,
        kind: str,
        folder: Path,
        seed: int,
        *,
        root: str = "",
        settings: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        proxy: FaultyProxy | None = None,
        disks: Disks | None = None,
    ) -> None:
        """`settings`: of the services; `options`: with which delta-rs reads the root."""
        self.kind = kind
        self.folder = folder
        self.seed = seed
        self.path = folder / "root"
        self.root = root or str(self.path)
        self.wal = folder / "wal" if root else self.path / "_sluice" / "wal"
        self.lake = Lake(self.root, options)
        self.proxy = proxy
        self.disks = disks
        self.history = folder / "history"
        self.history.mkdir(parents=True)
        self.recorder = Recorder(self.history / "lab.jsonl")
        self.wall = Wall(folder / "clock")
        # A bucket has its proxy for that.
        self.store_faults = None if root else StoreFaults(folder / "store-faults")
        self.front = Front(seed)
        self.nursery = Nursery(folder / "out")
        self.services: list[ServiceProcess] = []
        """The newest last; more than one only while two are at work."""
        self.died: list[ServiceProcess] = []
        """Those that ended though nobody told them to."""
        self.unruly: list[str] = []
        """What was seen of those that were told to, and did not do it in order."""
        self.clients: dict[str, Child] = {}
        self.settings = dict(settings or {})
        self._lives = 0
        self.two_since: float | None = None

    # --- services -------------------------------------------------------------------------------

    @property
    def service(self) -> ServiceProcess:
        return self.services[-1]

    def begin_service(self, *, force: bool = False) -> ServiceProcess:
        log = self.folder / "service.log"
        faults = self.store_faults.path if self.store_faults is not None else None
        return ServiceProcess(self.nursery, self.root, self.wall, faults, self.settings, log, force=force)

    def start(self, *, force: bool = False) -> ServiceProcess:
        """Until it listens. An offline job may have the leadership for a while, and a disk may still be full."""
        deadline = now() + COMES_BACK_S
        while True:
            service = self.begin_service(force=force)
            try:
                service.wait_ready()
                break
            except Refused as error:
                self.recorder.note("lab", "refused", why=str(error)[-600:])
                if now() > deadline:
                    raise
                time.sleep(0.2)
        self.services.append(service)
        self.route()
        return service

    def route(self) -> None:
        self.died += [service for service in self.services if not service.alive and not service.told]
        self.services = [service for service in self.services if service.alive]
        self.front.targets = tuple(service.port for service in self.services)

    def restart(self) -> None:
        """Whatever there was is killed."""
        for service in self.services:
            service.kill()
        self.route()
        self.start()

    def begin_two(self) -> None:
        self.two_since = now()

    def end_two(self) -> None:
        assert self.two_since is not None
        # As an event at its beginning: the time of a note is when it is written.
        self.recorder.note("lab", "two", since=self.two_since, until=now())
        self.two_since = None

    def create_topics(self) -> None:
        with httpx.Client(base_url=self.front.url, timeout=20) as http:
            for name, configs in TOPICS.items():
                body = {
                    "topic_name": name,
                    "partitions_count": PARTITIONS[name],
                    "configs": [{"name": key, "value": value} for key, value in configs.items()],
                }
                made = http.post(f"{CLUSTER}/topics", json=body)
                assert made.is_success, made.text

    # --- clients --------------------------------------------------------------------------------

    def start_clients(self, name: str) -> None:
        self._lives += 1
        spec = {
            "set": name,
            "url": self.front.url,
            "history": str(self.history / f"{name}-{self._lives}.jsonl"),
            "folder": str(self.folder),
            "lake": self.lake.url,
            "options": self.lake.options,
            "life": f"p{self._lives}",
            "seed": f"{self.seed}/{name}",
            "environment": self.settings,
        }
        self.clients[name] = self.nursery.start("clients", spec, self.folder / f"{name}.log", {})

    def wait_for_work(self) -> None:
        """Until somebody has written and somebody has read: before that there is nothing to lose."""
        deadline = now() + COMES_BACK_S
        for name in ("producers", "readers"):
            path = next(self.history.glob(f"{name}-*.jsonl"), self.history / name)
            while b'"is": "ok"' not in (path.read_bytes() if path.exists() else b""):
                assert now() < deadline, f"no client of {name} got anything done"
                time.sleep(0.1)
                path = next(self.history.glob(f"{name}-*.jsonl"), path)

    def kill_clients(self, name: str) -> None:
        self.clients[name].signal(signal.SIGKILL)
        assert self.clients[name].wait(CLIENTS_END_S), "a process survived kill -9"

    def signal_clients(self, name: str, number: int) -> None:
        self.clients[name].signal(number)

    def end_clients(self) -> None:
        """They hear the end of what they asked, and go."""
        for name in self.clients:
            self.signal_clients(name, signal.SIGTERM)
        deadline = now() + CLIENTS_END_S
        for name, process in self.clients.items():
            if not process.wait(max(0.1, deadline - now())):
                self.recorder.note("lab", "killed at the end", told=name)
                self.kill_clients(name)
        self.clients = {}

    # --- the end --------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything works again."""
        self.wall.set(0)
        self.front.delay_s = self.front.broken = 0.0
        if self.proxy is not None:
            self.proxy.clear()
        if self.store_faults is not None:
            self.store_faults.clear()
        for name in self.clients:
            self.signal_clients(name, signal.SIGCONT)
        for service in self.services:
            service.signal(signal.SIGCONT)
        self.route()
        if not self.services:
            self.start()

    def settle(self) -> None:
        """Stop in order, recover what is left anywhere, and stop once more: what is stored now is all there is."""
        self._stop_all()
        self.start()
        self._stop_all()

    def _stop_all(self) -> None:
        for service in self.services:
            if (end := self.stop(service)) != "exit code 0":
                self.unruly.append(f"it ended with {end!r}")
        self.route()

    def stop(self, service: ServiceProcess) -> str:
        end = service.terminate()
        self.recorder.note("lab", "stopped", end=end)
        if service.hung:
            self.unruly.append("SIGTERM had no effect")
        return end

    def close(self) -> None:
        self.nursery.close()
        self.front.stop()
        if self.store_faults is not None:
            self.store_faults.close()
