"""The tour of getting-started, line by line, as it stands there. That of the README is a part of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.documents import ROOT, Block, blocks
from tests.support.server import Server

TOUR, SHOWN = "sh tour", "text"
ADDRESS = "http://127.0.0.1:8080"
"""What the documents write; the tests have another port."""
README, LONG_TOUR = ROOT / "README.md", ROOT / "docs" / "getting-started.md"


def steps(document: Path) -> list[tuple[str, list[str]]]:
    """Each block of commands, and the lines that the block behind it says they print."""
    found, following = [], blocks(document)
    for number, block in enumerate(following):
        if block.language == TOUR:
            shown = following[number + 1] if number + 1 < len(following) else Block("", "")
            found.append((block.text, shown.text.splitlines() if shown.language == SHOWN else []))
    return found


def test_the_tour_prints_what_it_says(server: Server):
    here = Path(server.root).parent  # so that ./shop is the root
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": binaries, "SLUICE_SERVER": server.url, "COLUMNS": "200"}
    tour = steps(LONG_TOUR)
    assert len(tour) > 4
    for script, promised in tour:
        if "curl " in script and shutil.which("curl") is None:
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, server.url)],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        printed = {line.strip() for line in done.stdout.splitlines()}
        printed |= {line.strip() for line in done.stderr.splitlines()}
        assert [line for line in promised if line.strip() not in printed] == [], done.stdout


def test_the_short_tour_is_a_part_of_the_long_one():
    """So that its lines are run, and print what it says, too."""
    (short,), long = steps(README), steps(LONG_TOUR)
    run = {line for script, _ in long for line in script.splitlines()}
    shown = {line for _, promised in long for line in promised}
    assert [line for line in short[0].splitlines() if line not in run] == []
    assert [line for line in short[1] if line not in shown] == []
