"""`python -m bench.peers`: Kafka and Sluice in turns on this machine; bench/results/peers/<figure>.json and .svg.

`--only produce,latency` chooses figures, `--quick` runs small sizes that show that everything works. Its results, and
those of fewer rounds than usual, go under build/: they say less than those that are kept.
"""

from __future__ import annotations

import argparse
import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
from rich.console import Console

from bench.figures import REPOSITORY, RESULTS, commit, machine
from bench.machine import described
from bench.others import Others
from bench.peers import disk, fetch, latency, memory, produce, recovery, spark, starting
from bench.peers.findings import BEHIND, PeerFindings
from bench.peers.jars import kafka_jars, spark_kafka_jars
from bench.peers.names import NAMES
from bench.peers.perf_output import UnreadableOutput
from bench.peers.sizes import FULL, QUICK, Sizes
from bench.peers.wire import BrokerError
from sluice.conf.jars import ResolveError
from sluice.log_store.errors import SluiceError

LIMIT_S = 60 * 60
"""No figure is begun after that: twice what all of them take on a quiet machine of two cores."""
FAILURES = (
    RuntimeError,
    OSError,
    json.JSONDecodeError,
    struct.error,
    subprocess.SubprocessError,
    httpx.HTTPError,
    UnreadableOutput,
    BrokerError,
    ResolveError,
    SluiceError,
)
"""What a server, a tool or the machine may do to a figure. Everything else is a mistake of ours, and ends the run."""
QUICK_RESULTS = REPOSITORY / "build" / "bench-peers"
FIGURES: dict[str, Callable[[Sizes], PeerFindings]] = {
    "produce": produce.run,
    "latency": latency.run,
    "fetch": fetch.run,
    "spark": spark.run,
    "disk": disk.run,
    "memory": memory.run,
    "start": starting.run,
    "recovery": recovery.run,
}
assert tuple(FIGURES) == NAMES


def main(arguments: list[str]) -> int:
    given = _parser().parse_args(arguments)
    names = [name for part in given.only for name in part.split(",") if name] or list(FIGURES)
    console = Console(width=160)
    if unknown := [name for name in names if name not in FIGURES]:
        console.print(f"no such figure: {', '.join(unknown)}. There are: {', '.join(FIGURES)}.", style="red")
        return 2
    try:
        kafka_jars(), spark_kafka_jars()
    except ResolveError as error:
        console.print(f"Kafka's jars could not be fetched: {error}", style="red")
        return 1
    sizes = QUICK if given.quick else FULL
    sizes = replace(sizes, rounds=given.rounds or sizes.rounds)
    console.print(f"{described(machine())}, commit {commit()}\n")
    # Ended from outside, servers and scratch folders go as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = results_folder(given.results, quick=given.quick, rounds=sizes.rounds)
    return run_all(names, sizes, quick=given.quick, folder=folder, console=console)


def results_folder(given: Path | None, *, quick: bool, rounds: int) -> Path:
    """The results of this repository are of full sizes and all rounds; what is less goes under build/."""
    return given or (QUICK_RESULTS if quick or rounds < FULL.rounds else RESULTS / "peers")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("--only", action="append", default=[], metavar="NAME,…", help=", ".join(FIGURES))
    parser.add_argument("--quick", action="store_true", help="small sizes, one round; results go under build/")
    parser.add_argument(
        "--rounds",
        type=_at_least_one,
        help=f"of each side; default: {FULL.rounds}, with --quick {QUICK.rounds}; results of fewer than {FULL.rounds}"
        " go under build/",
    )
    parser.add_argument("--results", type=Path, help="where the JSON files and charts go")
    return parser


def _at_least_one(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def run_all(names: list[str], sizes: Sizes, *, quick: bool, folder: Path, console: Console) -> int:
    """1 if one of them failed; it does not cost the others."""
    failed, behind, begun = [], [], time.monotonic()
    for name in names:
        if time.monotonic() - begun > LIMIT_S:
            failed.append(name)
            console.print(f"{name} was left out: the others took more than {LIMIT_S / 60:.0f} minutes\n", style="red")
            continue
        others, started = Others(), time.monotonic()
        try:
            findings = FIGURES[name](sizes)
        except FAILURES as error:
            failed.append(name)
            console.print(f"{name} failed: {type(error).__name__}: {error}\n", style="red", markup=False)
            continue
        findings.busy_elsewhere, findings.quick = others.cores(), quick
        findings.took_s = time.monotonic() - started
        findings.write(folder)
        findings.show(console)
        console.print(f"{name} took {findings.took_s:.0f} s\n", style="dim")
        behind += [f"{name}: {one.figure.what}" for one in findings.ratios if one.verdict == BEHIND]
    for line in behind:
        console.print(f"behind: {line}", style="red", markup=False)
    console.print(f"\nall of it took {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
