"""Charts are well-formed, stay inside their picture and need no page to be readable."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.charts import WIDTH, amount, chart

SVG = "{http://www.w3.org/2000/svg}"


def result(figures: list[dict[str, Any]], title: str = "a title") -> dict[str, Any]:
    machine = {"cores": 2, "memory_gib": 23.5, "python": "3.11.7"}
    return {"title": title, "commit": "abc1234", "machine": machine, "figures": figures}


def bar(what: str, values: list[float], *, unit: str = "ms", side: str = "sluice") -> dict[str, Any]:
    low, median, high = sorted(values)
    return {"what": what, "unit": unit, "side": side, "median": median, "quartiles": [low, high]}


def test_every_measure_is_a_bar_of_its_side_and_ratios_are_none():
    figures = [bar("ours", [1, 2, 3]), bar("theirs", [2, 4, 5], side="kafka"), bar("ratio", [1, 1, 1], unit="×")]
    root = ElementTree.fromstring(chart(result(figures)))
    bars = [one for one in root.iter(f"{SVG}rect") if one.get("rx")]
    assert [one.get("class") for one in bars] == ["sluice", "kafka"]
    widths = [float(one.get("width", "")) for one in bars]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    assert "ratio" not in [one.text for one in root.iter(f"{SVG}text")]


def test_texts_of_any_kind_are_escaped():
    text = chart(result([bar('a < b & "c"', [1, 1, 1])], title='p99 < 10 & "more"'))
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'p99 < 10 & "more"'
    assert 'a < b & "c"' in [one.text for one in root.iter(f"{SVG}text")]


def test_light_and_dark_colour_the_same_things():
    light, dark = chart(result([bar("x", [1, 1, 1])])).split("@media (prefers-color-scheme: dark)")
    pattern = r"\.(\w+) \{ (?:fill|stroke): #\w{6} \}"
    assert set(re.findall(pattern, light)) == set(re.findall(pattern, dark))
    assert 'class="page" width=' in dark, "its own background: a page may be dark where the system is light"


@given(
    st.lists(
        st.tuples(st.sampled_from(["ms", "records/s"]), st.lists(st.floats(0, 1e9), min_size=3, max_size=3)),
        min_size=1,
        max_size=12,
    )
)
def test_nothing_leaves_the_picture(measures: list[tuple[str, list[float]]]):
    figures = [bar(f"m{number}", values, unit=unit) for number, (unit, values) in enumerate(measures)]
    root = ElementTree.fromstring(chart(result(figures)))
    height = float(root.get("height", ""))
    for one in root.iter(f"{SVG}rect"):
        assert float(one.get("x", 0)) + float(one.get("width", "")) <= WIDTH
        assert float(one.get("y", 0)) + float(one.get("height", "")) <= height


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.123456, "0.123"), (999, "999"), (1234, "1,234"), (45678, "45.7 k"), (2.5e6, "2.5 M")],
)
def test_amounts_are_short(value: float, text: str):
    assert amount(value) == text
