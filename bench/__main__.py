"""`python -m bench [name …]`: run the benchmarks, print their figures, write bench/results/<name>.json.

`growth` is the short form of a long run: `--full` is 100,000 versions and 1 GiB of WAL, `--versions N` any number.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console

from bench import (
    acks,
    append,
    compaction,
    groups,
    growth,
    http,
    ingest,
    merging,
    neighbours,
    opening,
    parallel,
    read,
    requests,
    retention,
    spark_sink,
    spark_source,
    steps,
)
from bench.figures import Findings, commit, machine
from bench.machine import described
from bench.others import Others

BENCHES: dict[str, Callable[[], Findings]] = {
    "append": append.run,
    "parallel": parallel.run,
    "open": opening.run,
    "read": read.run,
    "acks": acks.run,
    "ingest": ingest.run,
    "http": http.run,
    "neighbours": neighbours.run,
    "steps": steps.run,
    "groups": groups.run,
    "requests": requests.run,
    "merging": merging.run,
    "retention": retention.run,
    "spark_sink": spark_sink.run,
    "spark_source": spark_source.run,
    "growth": growth.run,
    "compaction": compaction.run,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHES))
    parser.add_argument("--full", action="store_true", help="growth at its full size")
    parser.add_argument("--versions", type=int, help="growth up to this many versions")
    parser.add_argument("--records", type=int, help="compaction, spark_source, spark_sink: of this many records")
    parser.add_argument("--keys", type=int, help="with this many keys")
    given = parser.parse_args(arguments)
    names: list[str] = given.names
    benches = BENCHES | {
        "growth": partial(growth.run, full=given.full, versions=given.versions),
        "compaction": partial(compaction.run, given.records, given.keys),
        "spark_source": partial(spark_source.run, given.records),
        "spark_sink": partial(spark_sink.run, given.records),
    }
    console = Console(width=140)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        console.print(f"no such benchmark: {', '.join(unknown)}. There are: {', '.join(BENCHES)}.", style="red")
        return 2
    console.print(f"{described(machine())}, commit {commit()}\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ended from outside, services and folders go as well
    missed = []
    for name in names or BENCHES:
        others, begun = Others(), time.monotonic()
        findings = benches[name]()
        findings.busy_elsewhere, findings.took_s = others.cores(), time.monotonic() - begun
        findings.write()
        findings.show(console)
        missed += [f"{name}: {f.what}" for f in findings.figures if f.target and not f.target.met(f.median)]
    for line in missed:
        console.print(f"target missed: {line}", style="red")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
