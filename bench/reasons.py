"""Where the rest of the time goes, for every target that was missed and every ratio in which a peer is ahead.

A reason is words; each figure in it is fetched from the results, as `{benchmark: figure}`, so that none is typed by
hand. One whose figure is not there is shown with "not measured" in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_FIGURE = re.compile(r"\{([^:{}]+): ([^{}]+)\}")

_GATHERED = (
    "acks=all says that the record is in the Delta table. A partition that is busy gathers for `commit.interval.ms` "
    "before it writes the next version, and half of that time is what a record waits on average; Kafka's acks=all on "
    "one broker waits for nobody, and for no disk. A shorter interval gives a shorter wait and more versions; who "
    "wants an answer from the write-ahead log takes acks=1."
)
_TAIL = (
    "The versions that eight partitions write between two acknowledgements are encoded and committed by threads of the "
    "same process, in part under Python's lock, on the same two cores as the load: the slowest in a hundred answers "
    "come while several of them are at work. Where the processor time of a request goes is in "
    "the table [steps](#steps)."
)
_STORED_TWICE = (
    "A broker stores the batch as its client made it. The service parses every record, checks and places it, and "
    "encodes Parquet that any Delta reader can read; for acks=1 the batch goes to the write-ahead log first, so that "
    "each record is written twice. Service and load share two cores, and much of the service Python's lock; the zstd "
    "of Kafka's producer costs its client, not the broker. Arrow needs no parsing: "
    "{produce: Arrow × 10,000, acks=1, fsync off} with acks=1."
)
REASONS: dict[tuple[str, str], str] = {
    ("spark_source", "rate of sluice / parquet"): (
        "A source in Python hands its rows to the JVM through a socket, and Spark turns Arrow vectors into rows there. "
        "One that has them in memory and reads nothing needs "
        "{spark_source: a Python source of rows in memory: CPU of 1 M records} of processor time for a million; "
        "Spark's scan of the same files, reading and decoding included, {spark_source: parquet: CPU of 1 M records}. "
        "One that passes on what pyarrow decodes of these files, and checks nothing, is at "
        "{spark_source: rate of pyarrow in a Python source / parquet} of that scan's rate; ours, which checks footers, "
        "pages and offsets and reads any range, at {spark_source: rate of sluice / pyarrow in a Python source} of "
        "pyarrow's. The way from Python to the JVM alone costs about what the scan does; both cores are busy. "
        "Decoding ahead in a thread, larger socket buffers, other allocators and other garbage collectors made it "
        "slower or changed nothing. Spark's own way to a Delta table: rate of sluice / delta is "
        "{spark_source: rate of sluice / delta}."
    ),
    ("spark", "Sluice source / Parquet scan"): (
        "The floor of a source in Python and pyarrow's decoding: see spark_source, where both are measured apart."
    ),
    ("produce", "JSON × 1,000"): _STORED_TWICE,
    ("produce", "binary × 1,000"): _STORED_TWICE,
    ("produce", "Arrow × 10,000 by the Python client"): (
        "The client encodes each table on the cores that the service needs; with requests that were encoded before it "
        "is {produce: Arrow × 10,000, acks=all, fsync off}."
    ),
    ("produce", "Arrow × 10,000, acks=all: fsync on / off"): (
        "With fsync every byte is written twice, to the write-ahead log and to its Parquet file, and an answer "
        "waits for the disk; how long that takes changes from round to round, see the quartiles."
    ),
    ("disk", "Sluice, merged"): (
        "What the service merges by itself it writes with zstd's level 1, because it does so beside the load: on these "
        "records {disk: Sluice, merged}. The job `merge` takes level 6, which takes longer to encode: "
        "{disk: Sluice, deeply merged}, {disk: Sluice, deeply merged / Kafka, zstd, default batches} of Kafka's."
    ),
    ("http", "acks=1 at"): _TAIL,
    ("acks", "acks=1 at"): _TAIL,
    ("latency", "Sluice, acks=all"): _GATHERED,
    ("latency", "Sluice, acks=1"): _TAIL,
    ("fetch", "Python reader"): (
        "A Python object is made of each record, by threads that share Python's lock with those that receive the "
        "answers; consumer-perf counts bytes and makes no object that anybody could use. Who reads much asks the "
        "reader for tables: {fetch: Python reader, tables}."
    ),
    ("memory", "Sluice / Kafka, peak under load"): (
        "What is at work is in the process: bodies of requests (`request.memory.max.bytes`), batches that are not "
        "committed (`pending.max.bytes`), the newest records (`tail.cache.bytes`). Kafka leaves its log to the page "
        "cache, which is not counted, and its heap is as large after the start as under load."
    ),
    ("neighbours", "bombs with a wrong end: p99"): (
        "Tens of thousands of good records are unpacked, parsed and made columns of before the wrong byte is seen, "
        "piece by piece in a thread, but under Python's lock and on the two cores that attackers, client and service "
        "share. That is what a request costs that is as large and right; {neighbours: bombs with a wrong end: 400} "
        "were sent in all turns together, as each is answered a second late."
    ),
    ("neighbours", "bombs with a wrong end: growth / request.max.bytes"): (
        "The body as it was unpacked, and its records as columns: what a good request of that size needs as well. How "
        "many of them are at work is limited by `fetch.threads`."
    ),
}
"""By benchmark and beginning of the figure's name; the longest one that fits is taken."""


def reason_for(section: str, what: str, value: Callable[[str, str], str]) -> str | None:
    """`value(benchmark, figure)` is the figure as it is shown."""
    fitting = [key for key in REASONS if key[0] == section and what.startswith(key[1])]
    if not fitting:
        return None
    text = REASONS[max(fitting, key=lambda key: len(key[1]))]
    return _FIGURE.sub(lambda match: value(match[1], match[2]), text)
