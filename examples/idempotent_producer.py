"""Repeats that add nothing twice: by hand over HTTP, and as the Python client does it for you.

Start a service, then run this against it::

    sluice serve --root /tmp/sluice-example &
    python examples/idempotent_producer.py http://127.0.0.1:8080

A producer that got no answer cannot know whether its records were stored. A numbered request may be sent again: the
service answers with the first offsets. It exits with 0 only if the log holds every record once.
"""

from __future__ import annotations

import sys
import uuid
from typing import Any

import httpx

from sluice.api.client import SluiceClient
from sluice.log_store.errors import InvalidProducerEpoch, ProducerFenced

SENT_BY_CLIENT = 500


def by_hand(http: httpx.Client, topic: str) -> bool:
    """Three headers make a request repeatable. To a topic the sequence counts requests: 0, 1, 2, …"""
    made = http.post("/v3/clusters/-/producers", json={"mode": "topic"}).raise_for_status().json()
    stamp = {
        "Sluice-Producer-Id": str(made["producer_id"]),
        "Sluice-Producer-Epoch": str(made["producer_epoch"]),
        "Sluice-Sequence": "0",
    }
    body = {"records": [{"key": "c-7", "value": {"item": "lamp"}}, {"key": "c-8", "value": {"item": "desk"}}]}

    def send() -> Any:
        return http.post(f"/topics/{topic}", json=body, headers=stamp).raise_for_status().json()

    first, repeat = send(), send()
    print("first: ", first["offsets"])
    print("repeat:", repeat["offsets"], "duplicate:", repeat.get("duplicate"))
    return [one["offset"] for one in first["offsets"]] == [one["offset"] for one in repeat["offsets"]]


def by_client(client: SluiceClient, topic: str) -> bool:
    """The client numbers its requests by itself. A name keeps the id over restarts and shuts out the predecessor."""
    name = f"web-shop-{uuid.uuid4().hex[:6]}"
    with client.producer(name=name) as old:
        futures = [old.send(topic, b'{"n":%d}' % n, key=b"c-%d" % n) for n in range(SENT_BY_CLIENT)]
        old.flush()
        print("the client stored", len({(one.result().partition, one.result().offset) for one in futures}), "records")
        with client.producer(name=name) as new:
            new.send(topic, b'{"from":"the successor"}').result()
        # The one that was replaced wakes up, and is told so.
        late = old.send(topic, b'{"from":"a zombie"}')
        old.flush()
        fenced = isinstance(late.exception(), InvalidProducerEpoch | ProducerFenced)
        print("its predecessor was refused:", type(late.exception()).__name__)
    return fenced


def main(server: str) -> int:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    with httpx.Client(base_url=server, timeout=30) as http, SluiceClient(server) as client:
        client.topics.create(topic, partitions=2)
        held = by_hand(http, topic) and by_client(client, topic)
        total = sum(one.latest - one.earliest for one in client.offsets(topic))
        client.topics.delete(topic)
    wanted = 2 + SENT_BY_CLIENT + 1
    print(f"{total} records in the log, {wanted} were sent")
    return 0 if held and total == wanted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
