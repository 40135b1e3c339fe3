"""A Spark job that copies a topic to a Delta table, exactly once; its driver is killed and stopped again and again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.lab.client import ORDERS, Client, Surroundings
from tests.support.spark_jobs import Driver

LONGEST_LIFE_S = 30.0


class Copying(Client):
    def __init__(self, around: Surroundings, folder: Path) -> None:
        super().__init__(around, "spark")
        self._folder = folder
        self._driver: Driver | None = None

    def once(self) -> None:
        arguments = [
            *("--topics", ORDERS, "--path", self.around.lake.url, "--to", f"delta:{self._folder / 'copies'}"),
            *("--checkpoint", str(self._folder / "checkpoint"), "--starting-offsets", "earliest"),
            *("--server", self.around.url, "--trigger", "processingTime"),
        ]
        operation = self.recorder.invoke(self.name, "job", job="consumer")
        driver = self._driver = Driver(arguments, self._folder, environment=self.around.environment)
        if self._lives(driver, self.dice.uniform(5.0, LONGEST_LIFE_S)):
            if self.dice.random() < 0.3:
                self._freeze(driver)
            else:
                driver.kill()
                self.recorder.note(self.name, "nemesis", kind="kill-driver", told="")
        self._ended(driver)
        operation.ok(job="consumer", code=driver.process.returncode, batches=driver.count("progress"))

    def _lives(self, driver: Driver, seconds: float) -> bool:
        """Whether it still does after that time, counted from its first batch; it takes long to start."""
        for _ in range(600):
            if self.stopping.wait(0.2) or driver.process.poll() is not None or driver.count("progress"):
                break
        self.stopping.wait(seconds)
        return driver.process.poll() is None and not self.stopping.is_set()

    def _freeze(self, driver: Driver) -> None:
        os.killpg(driver.process.pid, signal.SIGSTOP)
        self.stopping.wait(self.dice.uniform(1.0, 4.0))
        os.killpg(driver.process.pid, signal.SIGCONT)
        self.recorder.note(self.name, "nemesis", kind="stop-driver", told="")
        self._lives(driver, self.dice.uniform(1.0, 5.0))

    def _ended(self, driver: Driver) -> None:
        driver.kill()
        driver.wait()

    def end(self) -> None:
        if self._driver is not None:
            self._ended(self._driver)
