"""Why Karapace is left out is what pip said, and nothing of pip's own words, which name folders and indexes."""

from __future__ import annotations

import pytest

from bench.peers.karapace import reason

NONE = "ERROR: No matching distribution found for karapace"
PAGE = "Could not fetch URL https://index/simple/karapace/: "


@pytest.mark.parametrize(
    ("code", "told", "expected"),
    [
        (1, f"{PAGE}404 Client Error: Not Found - skipping\n{NONE}", "there is no package of that name for pip"),
        (1, f"{PAGE}connection error: Max retries exceeded - skipping\n{NONE}", "pip could not ask its index"),
        (1, f"{PAGE}503 Server Error - skipping\n{NONE}", "pip could not ask its index"),
        (
            1,
            f"{PAGE}404 Not Found - skipping\n{PAGE}connection error - skipping\n{NONE}",
            "pip could not ask its index",
        ),
        (1, f"Skipping link: Requires-Python >=3.13\n{NONE}", "no version of it that installs here"),
        (2, "ERROR: could not write", r"pip could not fetch the package (it ended with 2)"),
        (0, "Saved karapace-1-py3-none-any.whl", "nobody has measured it here"),
    ],
)
def test_no_package_is_told_apart_from_no_answer(code: int, told: str, expected: str):
    line = reason(code, told)
    assert line.startswith("Karapace is left out: ")
    assert expected in line
    assert "https" not in line
