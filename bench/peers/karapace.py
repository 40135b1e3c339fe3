"""Karapace, where it installs."""

from __future__ import annotations

import subprocess
import sys
import tempfile

NAME = "karapace"
LIMIT_S = 60
_LEFT_OUT = "Karapace is left out"


def line() -> str:
    """Why it is left out. pip is asked, as anybody would ask it who wants to install it."""
    with tempfile.TemporaryDirectory() as folder:
        # -vv: how an index answered. Without, one that cannot be reached and one that has no such package look alike.
        command = [sys.executable, "-m", "pip", "download", "-vv", "--no-deps", "--dest", folder, NAME]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"{_LEFT_OUT}: pip had no answer within {LIMIT_S} s, so whether there is a package is not known"
    return reason(done.returncode, done.stdout + done.stderr)


def reason(code: int, told: str) -> str:
    """Of what pip did. Nothing of its output is passed on: it names folders and indexes."""
    if code == 0:
        return f"{_LEFT_OUT}: pip finds a package of that name, but nobody has measured it here"
    asked = [text for text in told.splitlines() if "Could not fetch URL" in text and f"/{NAME}/" in text]
    if any("404" not in text for text in asked):
        return f"{_LEFT_OUT}: pip could not ask its index, so whether there is a package is not known"
    if asked and f"No matching distribution found for {NAME}" in told:
        return f"{_LEFT_OUT}: there is no package of that name for pip (its index answers 404)"
    if f"No matching distribution found for {NAME}" in told:
        return f"{_LEFT_OUT}: pip finds a package of that name, but no version of it that installs here"
    return f"{_LEFT_OUT}: pip could not fetch the package (it ended with {code})"
