"""Where the rest of the time goes, for every target that was missed and every ratio in which a peer is ahead.

A reason is words. Each figure in it is fetched from the results, as `{benchmark: figure}`, and each setting from where
it is set, so that none is typed by hand. One whose figure is not there is shown with "not measured" in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bench.http_load import TICK_S
from bench.peers.sizes import PARTITIONS
from sluice.conf.settings import LogSettings, ServerSettings, WalSettings
from sluice.jobs.merge_plan import LEVEL as DEEP_LEVEL
from sluice.log_store.topic import codec

_FIGURE = re.compile(r"\{([^:{}]+): ([^{}]+)\}")
_MIB = 1 << 20

_GATHERED = (
    "acks=all says that the record is in the Delta table. A partition that is busy gathers for `commit.interval.ms` "
    f"({LogSettings().commit_interval_ms} by default) before it writes the next version: half of that is what a record "
    "waits on average, and then it waits for its version, whose file is encoded and written beside those of the other "
    "partitions. In one process, without HTTP, the p50 is {acks: acks=all at 2,000/s: p50}, through HTTP "
    "{latency: Sluice, acks=all, fsync off: p50}. Kafka's acks=all on one broker waits for nobody, and for no disk. A "
    "shorter interval gives a shorter wait and more versions; who wants an answer from the write-ahead log takes "
    "acks=1."
)
_BY_HTTP = (
    "Each record is an HTTP request of its own, from a load that wakes every "
    f"{TICK_S * 1000:g} ms and counts from when it was due. In one process, without HTTP, the p50 is "
    "{acks: acks=1 at 2,000/s: p50}, with an fsync. Kafka's producer has one connection and sends what has come "
    "together meanwhile."
)
_TAIL = (
    f"The versions that {PARTITIONS} partitions write between two acknowledgements are encoded and committed by "
    "threads of the same process, in part under Python's lock, on the cores that the load has as well: the slowest "
    "answers come while several of them are at work."
)
_DISK_TAIL = (
    "The p99.9 is {latency: Sluice, acks=1, fsync on: p99.9} with fsync and "
    "{latency: Sluice, acks=1, fsync off: p99.9} without, the p99 {latency: Sluice, acks=1, fsync on: p99} and "
    "{latency: Sluice, acks=1, fsync off: p99}: the difference is the disk's. An answer waits for an fsync of the "
    f"write-ahead log, and every `wal.sync.interval.ms` ({WalSettings().sync_interval_ms:,} by default) the files that "
    "were committed meanwhile are synced in bulk, on the same disk. Kafka answers from the page cache."
)
_PARSED = (
    "A broker stores the batch as its client made it. The service parses every record, checks and places it, and "
    "encodes Parquet that any Delta reader can read; for acks=1, and with fsync for acks=all as well, the batch goes "
    "to the write-ahead log first, so that each record is written twice. Much of that is under Python's lock. Arrow "
    "needs no parsing: {produce: Arrow × 10,000, acks=all, fsync off} with acks=all, "
    "{produce: Arrow × 10,000, acks=1, fsync off} with acks=1."
)
_ENCODED = (
    "A broker stores the batch as its client made it. The service places each record in its partition and encodes "
    "Parquet that any Delta reader can read; for acks=1, and with fsync for acks=all as well, the batch goes to the "
    "write-ahead log first, so that each record is written twice."
)
_BY_CLIENT = (
    "With acks=all each request of the client waits for its commit, and it has a bounded number of them under way; the "
    "same client with acks=1, which waits for no commit, is at "
    "{produce: Arrow × 10,000 by the Python client, acks=1, fsync off}. It also encodes each table on the cores that "
    "the service needs: with requests that were encoded before, and more of them at once, the service takes "
    "{produce: Arrow × 10,000, acks=all, fsync off} with acks=all and {produce: Arrow × 10,000, acks=1, fsync off} "
    "with acks=1."
)
_SYNCED = (
    "With fsync every byte is written twice, to the write-ahead log and to its Parquet file, and an answer waits for "
    "the disk; how long that takes changes from round to round, see the quartiles."
)
_SENT_AS_STORED = (
    "A broker sends the bytes of its log as they are. The service decodes Parquet for each answer and encodes Arrow, "
    "on the cores that the client decodes it with."
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
        "pyarrow's. The way from Python to the JVM alone costs about what the scan does; all cores are busy. "
        "Decoding ahead in a thread, larger socket buffers, other allocators and other garbage collectors made it "
        "slower or changed nothing. Spark's own way to a Delta table: rate of sluice / delta is "
        "{spark_source: rate of sluice / delta}."
    ),
    ("spark", "Sluice source / Parquet scan"): (
        "The floor of a source in Python and pyarrow's decoding: see spark_source, where both are measured apart."
    ),
    ("produce", "JSON × 1,000"): _PARSED,
    ("produce", "binary × 1,000"): _PARSED,
    ("produce", "Arrow × 10,000"): _ENCODED,
    ("produce", "Arrow × 10,000 by the Python client"): _BY_CLIENT,
    ("produce", "Arrow × 10,000, acks=all: fsync on / off"): _SYNCED,
    ("produce", "Arrow × 10,000 by the Python client, acks=all: fsync on / off"): _SYNCED,
    ("produce", "JSON × 1,000, acks=all: fsync on / off"): _SYNCED,
    ("produce", "binary × 1,000, acks=all: fsync on / off"): _SYNCED,
    ("disk", "Sluice"): (
        "Each Parquet file has a footer, page headers and statistics of its own, and each version a file in the Delta "
        "log; merging makes fewer of them."
    ),
    ("disk", "Sluice, merged"): (
        f"What the service merges by itself it writes with zstd's level {codec('producer')[1]}, because it does so "
        "beside the load: on these records {disk: Sluice, merged}. The job `merge` takes level "
        f"{DEEP_LEVEL}, which takes longer to encode: "
        "{disk: Sluice, deeply merged}, {disk: Sluice, deeply merged / Kafka, zstd, default batches} of Kafka's."
    ),
    ("http", "acks=1 at"): _TAIL,
    ("acks", "acks=1 at"): _TAIL,
    ("latency", "Sluice, acks=all"): _GATHERED,
    ("latency", "Sluice, acks=1, fsync off: p50"): _BY_HTTP,
    ("latency", "Sluice, acks=1, fsync on: p50"): _BY_HTTP,
    ("latency", "Sluice, acks=1"): _TAIL,
    ("latency", "Sluice, acks=1, fsync on: p99.9"): _DISK_TAIL,
    ("fetch", "HTTP fetch, Arrow"): _SENT_AS_STORED,
    ("fetch", "Python reader, tables"): _SENT_AS_STORED,
    ("fetch", "HTTP fetch, JSON"): (
        "The service writes every record as JSON text, the client parses it and makes an object of it, both under the "
        "lock of a Python process. Who reads much asks for Arrow: {fetch: HTTP fetch, Arrow}."
    ),
    ("fetch", "Python reader"): (
        "Both sides make an object of each record: consumer-perf in the compiled code of a JVM, the reader in Python, "
        "by threads that share its lock with those that receive the answers. Who reads much asks the reader for "
        "tables: {fetch: Python reader, tables}."
    ),
    ("memory", "Sluice / Kafka, peak under load"): (
        "What is at work is in the process: bodies of requests (`request.memory.max.bytes`, "
        f"{ServerSettings().request_memory_max_bytes // _MIB} MiB at most), batches that are not committed "
        f"(`pending.max.bytes`, {LogSettings().pending_max_bytes // _MIB} MiB), the newest records "
        f"(`tail.cache.bytes`, {LogSettings().tail_cache_bytes // _MIB} MiB): "
        "{memory: Sluice, after the first record} become {memory: Sluice, peak under load}. Kafka leaves its log to "
        "the page cache, which is not counted: {memory: Kafka, after the first record} become "
        "{memory: Kafka, peak under load}, as it touches more of the heap that it was given."
    ),
    ("neighbours", "bombs with a wrong end: p99"): (
        "All of the good records are unpacked, parsed and made columns of before the wrong byte is seen, piece by "
        "piece in a thread, but under Python's lock and on the cores that attackers, client and service share. That is "
        "what a request costs that is as large and right; {neighbours: bombs with a wrong end: 400} were sent in all "
        "turns together, as each is answered late on purpose."
    ),
    ("neighbours", "bombs with a wrong end: growth / request.max.bytes"): (
        "The body as it was unpacked, and its records as columns: what a good request of that size needs as well. How "
        "many of them are at work is limited by `fetch.threads`."
    ),
}
"""By benchmark and beginning of the figure's name; the longest one that fits is taken."""


def figures_of(text: str) -> list[tuple[str, str]]:
    """(benchmark, figure) of all that a reason fetches."""
    return [(match[1], match[2]) for match in _FIGURE.finditer(text)]


def reason_for(section: str, what: str, value: Callable[[str, str], str]) -> str | None:
    """`value(benchmark, figure)` is the figure as it is shown."""
    fitting = [key for key in REASONS if key[0] == section and what.startswith(key[1])]
    if not fitting:
        return None
    text = REASONS[max(fitting, key=lambda key: len(key[1]))]
    return _FIGURE.sub(lambda match: value(match[1], match[2]), text)
