"""Runs the tests in lanes: processes of pytest side by side, each with folders of its own, then with what is left.

Much of a test of kills, disks and Spark is waiting, so two cores do three lanes at once. A lane's lines are printed as
they come, with its name; what failed, in whichever lane, is said once more at the very end, where it is looked for.
The exit code is that of the worst lane. Who interrupts it waits for the lanes: they stop what their tests started.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

from tests import counts

_TESTS = Path(__file__).parent
_TOLD_AGAIN = 40
"""At most so many of the last telling lines of a lane that failed are repeated."""
LANES: dict[str, tuple[str, ...]] = {
    "spark": ("spark",),
    "faults": ("fault", "disk", "s3"),
    "others": (),
}
"""Folders by lane; `others` has those that nothing names, and the tests outside of folders."""
NEXT = ("property", "lab", "unit", "console", "examples") if counts.FULL else ("lab", "console", "examples")
"""Folders that are taken one by one, in this order, by the lane that is the first to have nothing left to do."""


def _named() -> set[str]:
    return {folder for folders in LANES.values() for folder in folders} | set(NEXT)


def _command(cache: str, folders: tuple[str, ...]) -> list[str]:
    base = [sys.executable, "-m", "pytest", "--durations=25", "-o", f"cache_dir=build/pytest-cache/{cache}"]
    if folders:
        return base + [str(_TESTS / folder) for folder in folders]
    return base + [f"--ignore={_TESTS / folder}" for folder in sorted(_named())]


_TELLING = ("E   ", "FAILED ", "ERROR ", "Fatal Python error", "INTERNALERROR>", "____")
"""How the lines of pytest begin that say which test failed, and why."""


class Lane:
    """Runs its own folders, then whatever of `left` no other lane has taken."""

    def __init__(self, name: str, left: SimpleQueue[str]) -> None:
        self.name = name
        self.worst = 0
        self._whole = False
        """Whether all was run; a lane that broke has no code of pytest."""
        self._left = left
        self._stopped = False
        self._process: subprocess.Popen[str] | None = None
        self._starting = threading.Lock()
        self._telling: deque[str] = deque(maxlen=_TOLD_AGAIN)
        self._running = threading.Thread(target=self._run)

    def start(self) -> Self:
        self._running.start()
        return self

    def _run(self) -> None:
        begun = time.monotonic()
        self._test(self.name, LANES[self.name])
        while not self._stopped:
            try:
                folder = self._left.get_nowait()
            except Empty:
                break
            self._test(folder, (folder,))
        self._whole = not self._stopped
        self._tell(f"exit code {self.worst} after {time.monotonic() - begun:.0f} s")

    def _test(self, cache: str, folders: tuple[str, ...]) -> None:
        with self._starting:
            if self._stopped:
                return
            self._process = process = subprocess.Popen(
                _command(cache, folders),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # a terminal's interrupt would come twice, and end pytest before it tidied up
            )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                self._tell(line.rstrip())
                if line.startswith(_TELLING):
                    self._telling.append(line.rstrip())
        self.worst = max(self.worst, abs(process.returncode))

    def _tell(self, line: str) -> None:
        """With its end in one piece: print writes it apart, and another lane's line may come between."""
        sys.stdout.write(f"{self.name:>6} | {line}\n")
        sys.stdout.flush()

    def end(self) -> int:
        if self._running.ident is not None:
            self._running.join()
        return self.worst or int(not self._whole)

    def tell_failures(self) -> None:
        if code := self.end():
            print(f"\n{self.name}: exit code {code}", *self._telling, sep="\n", flush=True)

    def stop(self) -> None:
        with self._starting:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):  # the latter is ignored in the background of a shell, and inherited
        signal.signal(number, _interrupt)
    left = SimpleQueue[str]()
    for folder in NEXT:
        left.put(folder)
    lanes = [Lane(name, left) for name in LANES]
    try:
        for lane in lanes:
            lane.start()
        worst = max(lane.end() for lane in lanes)
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
