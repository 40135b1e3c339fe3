"""`python -m bench [name …]`: run the benchmarks, print their figures, write bench/results/<name>.json."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from bench import acks, append, ingest, opening, parallel, read, requests
from bench.figures import Findings, commit, machine
from bench.harness import Neighbours

BENCHES: dict[str, Callable[[], Findings]] = {
    "append": append.run,
    "parallel": parallel.run,
    "open": opening.run,
    "read": read.run,
    "acks": acks.run,
    "ingest": ingest.run,
    "requests": requests.run,
}


def main(names: list[str]) -> int:
    console = Console(width=140)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        console.print(f"no such benchmark: {', '.join(unknown)}. There are: {', '.join(BENCHES)}.", style="red")
        return 2
    shape = machine()
    console.print(f"{shape['cores']} cores, {shape['memory_gib']} GiB, Python {shape['python']}, commit {commit()}\n")
    missed = []
    for name in names or BENCHES:
        neighbours = Neighbours()
        findings = BENCHES[name]()
        findings.busy_elsewhere = neighbours.cores()
        findings.write()
        findings.show(console)
        missed += [f"{name}: {f.what}" for f in findings.figures if f.target and not f.target.met(f.median)]
    for line in missed:
        console.print(f"target missed: {line}", style="red")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
