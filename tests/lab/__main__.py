"""`python -m tests.lab torture --minutes 30 [--seed N]`: exit code 0 if no anomaly was found, 1 if one was."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.lab.runner import Wish, own_mounts, torture

SITES = ("disk", "bucket")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab")
    parser.add_argument("what", choices=["torture", "soak"])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=30.0)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, help="of a run that is to be done again")
    parser.add_argument("--sites", default=",".join(SITES), help="folder, disk, bucket; default: %(default)s")
    parser.add_argument("--no-spark", action="store_true", help="no Spark job, however long the run is")
    parser.add_argument("--report", type=Path, help="where the report goes as JSON; of a soak the folder")
    parser.add_argument("--keep", action="store_true", help="keep the files of all rounds")
    options = parser.parse_args(arguments)
    seconds = options.seconds or options.minutes * 60
    if options.what == "soak":
        from tests.lab.soak import soak

        return soak(seconds, options.report)
    sites = tuple(options.sites.split(","))
    if "disk" in sites:
        own_mounts()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="sluice-lab-"))
    wish = Wish(seed, seconds, sites, folder, spark=not options.no_spark, keep=options.keep)
    again = f"python -m tests.lab torture --seconds {seconds:g} --seed {seed} --sites {options.sites}"
    keep = options.keep
    try:
        report = torture(wish, lambda line: print(line, flush=True))
        print(report.text())
        if options.report is not None:
            report.write(options.report)
        keep = keep or bool(report.anomalies)
    except Exception:
        keep = True
        raise
    finally:
        if keep:
            print(f"\nhistories and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"the same again: {again}{' --no-spark' if options.no_spark else ''}")
    return 1 if report.anomalies else 0


if __name__ == "__main__":
    # Whoever ends it ends what it started: services, clients, their jobs and Spark drivers, an S3 server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
