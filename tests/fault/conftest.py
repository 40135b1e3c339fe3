"""Every process that a test starts is ended with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import Process

Start = Callable[..., Process]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def start(tmp_root: Path, history: Path) -> Iterator[Start]:
    """`start(**spec)`: a worker on `tmp_root` that writes to `history`, unless told otherwise."""
    started: list[Process] = []

    def begin(*, root: Path = tmp_root, to: Path = history, **spec: Any) -> Process:
        started.append(Process(root, to, **spec))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
