"""Every invariant and every rule of the design is named by a test: one without a test fails the build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RULES = [*(f"I-{number}" for number in range(1, 13)), *(f"R-{number}" for number in range(1, 15))]
_CITED = re.compile(r"\b[IR]-\d{1,2}\b")


@pytest.fixture(scope="module")
def cited() -> set[str]:
    """Numbers that stand in a test module: in a docstring, a comment or a name of a case."""
    texts = (path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__))
    return {number for text in texts for number in _CITED.findall(text)}


@pytest.mark.parametrize("rule", RULES)
def test_a_test_cites_the_rule(rule: str, cited: set[str]) -> None:
    assert rule in cited, f"no test under tests/ cites {rule} of docs/protocol.md"


def test_no_test_cites_a_rule_that_does_not_exist(cited: set[str]) -> None:
    assert cited <= set(RULES)
