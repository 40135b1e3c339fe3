"""Karapace, where it installs."""

from __future__ import annotations

import subprocess
import sys
import tempfile


def line() -> str:
    """Why it is left out: it is not to be had as a package, or there is no more than the package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "karapace"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return "Karapace is left out: pip had no answer within 60 s"
    if done.returncode == 0:
        return "Karapace is left out: pip has a package of that name, but none that was ever measured here"
    return "Karapace is left out: pip finds no package of that name that installs here"
