"""Produce and fetch Arrow tables: the way for many records. Nothing is done per record, here or in the service.

Start a service, then run this against it::

    sluice serve --root /tmp/sluice-example &
    python examples/produce_arrow.py http://127.0.0.1:8080

Any language with an Arrow library can send such a body. It exits with 0 only if what was fetched is what was sent.
"""

from __future__ import annotations

import sys
import uuid

import httpx
import pyarrow as pa
import pyarrow.compute as pc

ARROW = "application/vnd.apache.arrow.stream"
READINGS, DEVICES = 50_000, 100


def readings() -> pa.Table:
    """`value` is what counts; `key`, `partition`, `timestamp` and `headers` may be there too."""
    devices = pa.array([f"device-{n % DEVICES}" for n in range(READINGS)])
    values = pa.array([f'{{"device":{n % DEVICES},"celsius":{n % 40}}}' for n in range(READINGS)])
    return pa.table({"key": devices, "value": values})


def as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def fetch_all(http: httpx.Client, topic: str, partition: int) -> pa.Table:
    """One partition, page after page, until its end."""
    path, offset, pages = f"/v3/clusters/-/topics/{topic}/partitions/{partition}/records", 0, []
    while True:
        limits = {"offset": offset, "max_records": 20_000, "max_bytes": 8 << 20, "max_wait_ms": 0}
        answer = http.get(path, params=limits, headers={"Accept": ARROW}).raise_for_status()
        pages.append(pa.ipc.open_stream(answer.content).read_all())
        offset = int(answer.headers["Sluice-Next-Offset"])
        if offset >= int(answer.headers["Sluice-High-Watermark"]):
            return pa.concat_tables(pages)


def main(server: str) -> int:
    topic = f"readings-{uuid.uuid4().hex[:6]}"
    with httpx.Client(base_url=server, timeout=60) as http:
        created = http.post("/v3/clusters/-/topics", json={"topic_name": topic, "partitions_count": 2})
        created.raise_for_status()
        sent = readings()
        answer = http.post(f"/topics/{topic}", content=as_stream(sent), headers={"Content-Type": ARROW})
        for part in answer.raise_for_status().json()["partitions"]:
            print(f"partition {part['partition']}: {part['count']} records from offset {part['base_offset']} on")

        # Records of one key are in one partition, the one that Kafka's own partitioner would choose.
        found = pa.concat_tables([fetch_all(http, topic, number) for number in range(2)])
        http.delete(f"/v3/clusters/-/topics/{topic}").raise_for_status()
    sent_values, found_values = pc.cast(sent["value"], pa.binary()), pc.cast(found["value"], pa.binary())
    same = sorted(sent_values.to_pylist()) == sorted(found_values.to_pylist())
    print(f"{found.num_rows} records fetched, the same as were sent: {same}; columns {found.schema.names}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
