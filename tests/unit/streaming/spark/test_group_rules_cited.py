"""Every rule of docs/spark-groups.md, which are those of the design for group progress, is named by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
RULES = re.findall(r"^- (G-\d+) ", (ROOT / "docs" / "spark-groups.md").read_text(encoding="utf-8"), re.MULTILINE)
FOLDERS = ("tests/http_client/spark_groups", "tests/spark", "tests/unit/streaming/spark")


@pytest.fixture(scope="module")
def cited() -> set[str]:
    files = (path for folder in FOLDERS for path in (ROOT / folder).glob("test_*.py") if path != Path(__file__))
    return {number for path in files for number in re.findall(r"\bG-\d+\b", path.read_text(encoding="utf-8"))}


def test_the_rules_are_numbered_from_one() -> None:
    assert [f"G-{number}" for number in range(1, 11)] == RULES


@pytest.mark.parametrize("rule", RULES)
def test_a_test_cites_the_rule(rule: str, cited: set[str]) -> None:
    assert rule in cited, f"no test cites {rule} of docs/spark-groups.md"


def test_no_test_cites_a_rule_that_does_not_exist(cited: set[str]) -> None:
    assert cited <= set(RULES)
