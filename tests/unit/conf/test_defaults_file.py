from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from sluice.conf import Settings, load_settings
from sluice.conf.declare import format_size
from sluice.conf.defaults_file import render


def test_the_shipped_file_is_the_generated_one():
    shipped = files("sluice.conf").joinpath("defaults.toml").read_text(encoding="utf-8")
    assert shipped == render(), "run: python -m sluice.conf > conf/defaults.toml"


def test_the_command_prints_it():
    printed = subprocess.run([sys.executable, "-m", "sluice.conf"], capture_output=True, text=True, check=True)
    assert printed.stdout == render()


def test_loading_it_changes_nothing(tmp_path: Path):
    path = tmp_path / "defaults.toml"
    path.write_text(render(), encoding="utf-8")
    assert load_settings(path, {}) == Settings()


def test_sizes_are_printed_in_their_largest_exact_unit():
    assert [format_size(n) for n in (0, 1, 1024, 1025, 3 << 30)] == ["0 B", "1 B", "1 KiB", "1025 B", "3 GiB"]
