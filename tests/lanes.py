"""Runs the tests in lanes: processes of pytest side by side, each with folders of its own.

Much of a test of kills, disks and Spark is waiting, so two cores do three lanes at once. A lane's lines are printed as
they come, with its name; what failed, in whichever lane, is said once more at the very end, where it is looked for.
The exit code is that of the worst lane.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from tests import counts

_TESTS = Path(__file__).parent
_TOLD_AGAIN = 40
"""At most so many of the last telling lines of a lane that failed are repeated."""
LANES: dict[str, tuple[str, ...]] = {
    "spark": ("spark", "lab", "property") if counts.FULL else ("spark",),
    "faults": ("fault", "disk", "s3", "examples", "console") + (() if counts.FULL else ("lab",)),
    "others": (),
}
"""Folders by lane; `others` has those that no lane names, and the tests outside of folders. At full counts kills, and
examples of properties, take longest, so that other folders go to the lane of Spark, which waits most."""


def _named() -> set[str]:
    return {folder for folders in LANES.values() for folder in folders}


def _command(lane: str) -> list[str]:
    base = [sys.executable, "-m", "pytest", "--durations=25", "-o", f"cache_dir=build/pytest-cache/{lane}"]
    if LANES[lane]:
        return base + [str(_TESTS / folder) for folder in LANES[lane]]
    return base + [f"--ignore={_TESTS / folder}" for folder in sorted(_named())]


_TELLING = ("E   ", "FAILED ", "ERROR ", "Fatal Python error", "INTERNALERROR>", "____")
"""How the lines of pytest begin that say which test failed, and why."""


class Lane:
    def __init__(self, name: str) -> None:
        self.name = name
        self._telling: deque[str] = deque(maxlen=_TOLD_AGAIN)
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            _command(name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self._printing = threading.Thread(target=self._print)
        self._printing.start()

    def _print(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            print(f"{self.name:>6} | {line.rstrip()}", flush=True)
            if line.startswith(_TELLING):
                self._telling.append(line.rstrip())
        took = time.monotonic() - self._begun
        print(f"{self.name:>6} | exit code {self._process.wait()} after {took:.0f} s", flush=True)

    def end(self) -> int:
        self._printing.join()
        return self._process.wait()

    def tell_failures(self) -> None:
        if code := self.end():
            print(f"\n{self.name}: exit code {code}", *self._telling, sep="\n", flush=True)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()


def main() -> int:
    lanes = [Lane(name) for name in LANES]
    try:
        worst = max(abs(lane.end()) for lane in lanes)
        for lane in lanes:
            lane.tell_failures()
        return worst
    except KeyboardInterrupt:
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.end()
        return 130


if __name__ == "__main__":
    sys.exit(main())
