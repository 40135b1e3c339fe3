"""A full or read-only disk as a client over HTTP sees it: refused by name, not ready, and over when the cause is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.disk.disks import Disks
from tests.disk.test_full import FULL, RESUME_S
from tests.disk.test_read_only import READ_ONLY
from tests.support.harness import REPOSITORY, boottime, wait_until
from tests.support.server import Server, running

RECORDS = "/v3/clusters/-/topics/t/partitions/0/records"
RED_WITHIN_S = 2.0
PADDING = "x" * 20_000
"""Enough to use up what the write-ahead log has set aside before the disk was full."""


@pytest.fixture
def server(disks: Disks, tmp_path: Path) -> Iterator[Server]:
    disks.mount_tmpfs(tmp_path / "root", 24)
    with running(tmp_path / "root", within=disks.within(REPOSITORY), SLUICE_WAL_FILE_BYTES="1 MiB") as server:
        created = server.client.post("/v3/clusters/-/topics", json={"topic_name": "t", "partitions_count": 1})
        assert created.status_code == 201, created.text
        yield server


class Sender:
    """Sends one record after the other and keeps what was promised."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sent = 0
        self.acked: dict[int, str] = {}

    def send(self, acks: str) -> httpx.Response:
        self._sent += 1
        value = f"{self._sent}-{PADDING}"
        address = f"/topics/t/partitions/0?acks={acks}"
        answer = self._server.client.post(address, json={"records": [{"value": value}]})
        if answer.status_code == 200:
            (told,) = answer.json()["offsets"]
            assert told["error_code"] is None
            assert told["offset"] not in self.acked
            self.acked[told["offset"]] = value
        return answer

    def lost(self) -> set[int]:
        """Acknowledged offsets that do not hold what was sent."""
        found: dict[int, str] = {}
        while True:
            answer = self._server.client.get(RECORDS, params={"offset": len(found)})
            assert answer.status_code == 200, answer.text
            if not (records := answer.json()["data"]):
                return {offset for offset, value in self.acked.items() if found.get(offset) != value}
            found |= {record["offset"]: record["value"] for record in records}
            assert len(found) == max(found) + 1, "offsets are not dense"


def _is_refusal(answer: httpx.Response, cause: str = FULL) -> bool:
    """Says what is wrong in Confluent's members and by Kafka's name. Only what was under way may be in doubt (R-4)."""
    body = answer.json()
    assert body["error_code"] == answer.status_code
    assert cause in body["message"]
    if answer.status_code == 504:
        assert body["error"] == "REQUEST_TIMED_OUT"
        return False
    assert answer.status_code == 503, answer.text
    assert body["error"] == "KAFKA_STORAGE_ERROR"
    assert body["retriable"]
    assert int(answer.headers["Retry-After"]) >= 1
    return True


def _is_ready(server: Server) -> bool:
    return server.client.get("/readyz").status_code == 200


def _is_well_again(server: Server, sender: Sender) -> None:
    """Without a restart; and a restart finds everything."""
    for acks in ("all", "1"):
        wait_until(lambda acks=acks: sender.send(acks).status_code == 200, f"acks={acks} works", timeout_s=RESUME_S)
    wait_until(lambda: _is_ready(server), "/readyz is green", timeout_s=RESUME_S)
    assert sender.lost() == set()
    assert server.terminate() == 0
    server.start()
    assert sender.lost() == set()


def test_full_disk_and_room_again_over_http(server: Server, disks: Disks) -> None:
    """Section 2, I-1: 503 by name, red within 2 s, nothing acknowledged lost, and no restart to come back."""
    sender = Sender(server)
    assert [sender.send(acks).status_code for acks in ("all", "1")] == [200, 200]
    assert _is_ready(server)

    refused: set[str] = set()
    first: list[float] = []

    def all_are_refused() -> bool:
        disks.fill(server.root)  # again and again, because a service that stops gives room back
        for acks in ("all", "1"):
            answer = sender.send(acks)
            if answer.status_code != 200 and not first:
                first.append(boottime())
                wait_until(lambda: not _is_ready(server), "/readyz is red", timeout_s=RED_WITHIN_S)
            if answer.status_code != 200 and _is_refusal(answer):
                refused.add(acks)
        return refused == {"all", "1"}

    wait_until(all_are_refused, "both kinds of acks refused")
    told = server.client.get("/readyz")
    assert told.status_code == 503
    assert any(FULL in trouble for trouble in told.json()["troubles"])
    assert server.client.get("/healthz").status_code == 200, "it must not be restarted for this"

    disks.empty(server.root)
    _is_well_again(server, sender)


def test_read_only_and_writable_again_over_http(server: Server, disks: Disks) -> None:
    """The same for a disk that became read-only: red within 2 s of the first refusal, and no ack before it is over."""
    sender = Sender(server)
    assert [sender.send(acks).status_code for acks in ("all", "1")] == [200, 200]
    disks.read_only(server.root)
    began = boottime()
    refused = wait_until(lambda: (answer := sender.send("all")).status_code != 200 and answer, "acks=all refused")
    wait_until(lambda: not _is_ready(server), "/readyz is red", timeout_s=RED_WITHIN_S)
    print(f"read-only to red: {boottime() - began:.2f} s")
    assert READ_ONLY in refused.json()["message"]
    wait_until(lambda: _is_refusal(sender.send("all"), READ_ONLY), "refused at once")
    assert any(READ_ONLY in trouble for trouble in server.client.get("/readyz").json()["troubles"])
    assert sender.lost() == set(), "reads go on"

    disks.writable(server.root)
    _is_well_again(server, sender)
