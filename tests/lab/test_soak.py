"""A soak that is far too short to say anything, but goes all the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.soak import soak


@pytest.mark.full
def test_a_short_soak(tmp_path: Path) -> None:
    assert soak(20, tmp_path) == 0
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["wrong"] == []
    assert min(found["acked"].values()) > 0
    assert found["figures"]["memory, MiB"]["last_quarter"] > 0
    assert (tmp_path / "soak.svg").read_text().startswith("<svg")
