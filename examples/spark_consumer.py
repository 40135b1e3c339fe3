"""A consumer job from end to end: orders are produced, a Spark job checks them and writes a Delta table.

Start a service, then run this against it (it needs Java)::

    sluice serve --root /tmp/sluice-example &
    python examples/spark_consumer.py http://127.0.0.1:8080

The job is the one of `spark-submit streaming/consumer.py`, as a process of its own. Orders with a negative price are
rejected by `check` below and end in a dead-letter topic.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.api.client import Record, SluiceClient
from sluice.streaming import ConsumedRecord, Rejected

ORDERS = 1_000


def check(record: ConsumedRecord) -> object:
    """Called for every record, on Spark's executors."""
    if record.json()["price"] < 0:
        raise Rejected("a negative price")
    return record


def main(server: str) -> int:
    topic, folder = f"orders-{uuid.uuid4().hex[:6]}", Path(tempfile.mkdtemp(prefix="sluice-example-"))
    with SluiceClient(server) as client:
        client.topics.create(topic, partitions=2)
        client.produce(
            topic, [Record(value=b'{"item": "lamp", "price": %d}' % (-1 if n % 100 == 0 else n)) for n in range(ORDERS)]
        )
        job = [
            *(sys.executable, "-m", "sluice.streaming.consumer", "--server", server, "--topics", topic),
            *("--to", f"delta:{folder}/orders", "--checkpoint", f"{folder}/checkpoint", "--trigger", "availableNow"),
            *("--starting-offsets", "earliest", "--json-schema", "item STRING, price INT"),
            *("--each", "spark_consumer:check", "--dead-letter", f"{topic}-rejected"),
        ]
        # The job finds `check` by the name of this file.
        here = {"PYTHONPATH": str(Path(__file__).resolve().parent)}
        subprocess.run(job, check=True, cwd=folder, env=os.environ | here)
        rejected = sum(one.latest - one.earliest for one in client.offsets(f"{topic}-rejected"))

    # Any engine that reads Delta will do; this one needs no second Spark session.
    table = QueryBuilder().register("orders", DeltaTable(f"{folder}/orders"))
    (total,) = pa.table(table.execute("SELECT count(*) AS n, sum(price) AS price FROM orders").read_all()).to_pylist()
    shutil.rmtree(folder)
    print(f"{total} in the table, {rejected} rejected")
    wanted = [n for n in range(ORDERS) if n % 100]
    return 0 if total == {"n": len(wanted), "price": sum(wanted)} and rejected == 10 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
