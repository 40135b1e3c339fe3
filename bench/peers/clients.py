"""The Python client as a process of its own: `python -m bench.peers.clients` reads one line of JSON and prints one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from bench.data import batch
from sluice.api.client import SluiceClient
from sluice.api.client_reader import MOST_RECORDS

FETCH_THREADS = 4
"""Requests at once: a server that works on one and sends another, twice."""
PRODUCE_THREADS = 16
"""With acks=all each waits for a commit: fewer would measure `commit.interval.ms`."""
BATCH = 10_000


def fetch_arrow(client: SluiceClient, order: dict[str, Any]) -> int:
    """Every partition as tables, by HTTP fetch."""
    topic = order["topic"]

    def fetch(number: int, position: int) -> tuple[int, int]:
        found = client.fetch_arrow(topic, number, position)
        return found.table.num_rows, found.next_offset

    return _drain(client, order, fetch)


def fetch_json(client: SluiceClient, order: dict[str, Any]) -> int:
    """Every partition as JSON, by HTTP fetch; the client makes an object of each record."""
    topic = order["topic"]

    def fetch(number: int, position: int) -> tuple[int, int]:
        found = client.fetch(topic, number, position, max_records=MOST_RECORDS, response_format="json")
        return len(found.records), found.next_offset

    return _drain(client, order, fetch)


def _drain(client: SluiceClient, order: dict[str, Any], fetch: Callable[[int, int], tuple[int, int]]) -> int:
    """Every partition to its end, a few of them at once. `fetch` gives the number of records and the next offset."""

    def read(number: int, end: int) -> int:
        position = rows = 0
        while position < end:
            count, position = fetch(number, position)
            rows += count
        return rows

    ends = client.offsets(order["topic"])
    with ThreadPoolExecutor(FETCH_THREADS) as pool:
        return sum(pool.map(lambda one: read(one.partition, one.latest), ends))


def reader_tables(client: SluiceClient, order: dict[str, Any]) -> int:
    with client.reader(order["topic"], stop_at_end=True) as reader:
        return sum(fetched.table.num_rows for _, fetched in reader.tables())


def reader_batches(client: SluiceClient, order: dict[str, Any]) -> int:
    with client.reader(order["topic"], stop_at_end=True) as reader:
        return sum(len(fetched.records) for fetched in reader.batches())


def reader_records(client: SluiceClient, order: dict[str, Any]) -> int:
    with client.reader(order["topic"], stop_at_end=True) as reader:
        return sum(1 for _ in reader)


def produce_arrow(client: SluiceClient, order: dict[str, Any]) -> int:
    """Tables that the client encodes itself."""
    tables = [pa.Table.from_batches([batch(BATCH, seed).select(["value"])]) for seed in range(4)]
    count: int = order["records"] // BATCH

    def send(number: int) -> None:
        client.produce_arrow(order["topic"], tables[number % len(tables)], acks=order["acks"])

    with ThreadPoolExecutor(PRODUCE_THREADS) as pool:
        list(pool.map(send, range(count)))
    return count * BATCH


WORK: dict[str, Callable[[SluiceClient, dict[str, Any]], int]] = {
    "fetch_arrow": fetch_arrow,
    "fetch_json": fetch_json,
    "reader_tables": reader_tables,
    "reader_batches": reader_batches,
    "reader_records": reader_records,
    "produce_arrow": produce_arrow,
}


def main() -> None:
    order = json.loads(sys.stdin.readline())
    with SluiceClient(order["url"]) as client:
        client.offsets(order["topic"])
        begun = time.perf_counter()
        records = WORK[order["do"]](client, order)
        print(json.dumps({"records": records, "seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
