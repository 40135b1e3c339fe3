"""Produce and read JSON with nothing but Python's standard library: what any language with HTTP can do.

Start a service, then run this against it::

    sluice serve --root /tmp/sluice-example &
    python examples/produce_json.py http://127.0.0.1:8080

It exits with 0 only if every record came back as it was sent, and if a wrong request was refused by name.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ORDERS = [{"item": "lamp", "price": 30}, {"item": "desk", "price": 120}, {"item": "pen", "price": 2}]


def call(method: str, url: str, body: object = None) -> Any:
    """The answer's JSON. An error of the service is an HTTPError whose body says what is wrong."""
    content = None if body is None else json.dumps(body).encode()
    request = Request(url, content, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=30) as response:
        text = response.read()
        return json.loads(text) if text else None


def main(server: str) -> int:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    call("POST", f"{server}/v3/clusters/-/topics", {"topic_name": topic, "partitions_count": 1})

    # One request, one answer: the offset of every record. acks=all is the default: they are rows of a table now.
    records = [
        {"key": f"c-{n}", "value": order, "headers": [{"name": "via", "value": "d2Vi"}]}
        for n, order in enumerate(ORDERS)
    ]
    stored = call("POST", f"{server}/topics/{topic}?acks=all", {"records": records})
    print("stored at", [(one["partition"], one["offset"]) for one in stored["offsets"]])

    # A read names the offset to begin at, and is told where the next one begins. The service keeps nothing for it.
    page = f"{server}/v3/clusters/-/topics/{topic}/partitions/0/records?offset=0&max_wait_ms=1000"
    found = call("GET", page)
    for record in found["data"]:
        print(record["offset"], record["timestamp"], record["key"], record["value"], record["headers"])
    print("go on at", found["next_offset"], "of", found["high_watermark"])

    # Every error has one shape, with Kafka's name for it.
    try:
        call("POST", f"{server}/topics/{topic}?acks=2", {"records": records})
        refused = {}
    except HTTPError as error:
        refused = json.load(error)
        print("refused:", error.code, refused["error"], "-", refused["message"])

    call("DELETE", f"{server}/v3/clusters/-/topics/{topic}")
    same = [record["value"] for record in found["data"]] == ORDERS
    return 0 if same and refused.get("error") == "INVALID_REQUIRED_ACKS" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
