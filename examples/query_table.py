"""Query a topic as the Delta tables that it is, with delta-rs: no Spark, no Sluice on the way.

Start a service, then run this against it, on the machine that holds its storage root::

    sluice serve --root /tmp/sluice-example &
    python examples/query_table.py http://127.0.0.1:8080

What `acks=all` has acknowledged is a row at that moment. Only read: a table that another engine has written to refuses
produce. It exits with 0 only if the sums are right, and a record is seen right after its acknowledgement.
"""

from __future__ import annotations

import json
import sys
import uuid
from urllib.request import urlopen

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.api.client import Record, SluiceClient

ORDERS, PARTITIONS = 300, 3
COLUMNS = '"offset", "timestamp", key, CAST(value AS VARCHAR) AS value'
PER_PARTITION = 'SELECT partition, count(*) AS records, max("offset") AS last FROM topic GROUP BY partition ORDER BY 1'
TOTAL = "SELECT sum(CAST(value AS BIGINT)) AS total FROM topic"


def storage_root(server: str) -> str:
    with urlopen(f"{server}/v3/clusters/-", timeout=30) as answer:
        return str(json.load(answer)["storage_root"])


def query(root: str, topic: str, sql: str) -> list[dict[str, object]]:
    """SQL on the whole topic: a table for each partition, put together by UNION ALL."""
    engine = QueryBuilder()
    for number in range(PARTITIONS):
        engine = engine.register(f"p{number}", DeltaTable(f"{root}/topics/{topic}/{number}"))
    union = " UNION ALL ".join(f"SELECT {n} AS partition, {COLUMNS} FROM p{n}" for n in range(PARTITIONS))
    found: list[dict[str, object]] = pa.table(engine.execute(f"WITH topic AS ({union}) {sql}").read_all()).to_pylist()
    return found


def main(server: str) -> int:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    root = storage_root(server)
    with SluiceClient(server) as client:
        client.topics.create(topic, partitions=PARTITIONS)
        client.produce(topic, [Record(value=b"%d" % n, partition=n % PARTITIONS) for n in range(ORDERS)], acks="all")

        for row in query(root, topic, PER_PARTITION):
            print(row)
        (total,) = query(root, topic, TOTAL)

        # No lake job, no flush: the acknowledgement means that the row is there.
        client.produce(topic, [Record(value=b"1000000", partition=0)], acks="all")
        (after,) = query(root, topic, TOTAL)
        client.topics.delete(topic)
    print("before:", total, "after one more order:", after)
    return 0 if total["total"] == sum(range(ORDERS)) and after["total"] == sum(range(ORDERS)) + 1_000_000 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
