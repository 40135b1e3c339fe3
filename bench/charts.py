"""Bar charts as SVG, from the JSON of a result: readable on light and dark pages, with nothing but text and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES = 960, 430, 110
BAR, GAP, HEAD, PANEL = 18, 8, 58, 34
RATIO = "×"
# The background is part of the picture: a page may be dark where the system is light.
_STYLE = """
.page { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }
.sluice { fill: #1f6feb } .kafka { fill: #bc4c00 } .other { fill: #6e7781 } .spread { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .text { fill: #f0f6fc } .faint { fill: #9198a1 } .grid { stroke: #3d444d }
.sluice { fill: #58a6ff } .kafka { fill: #f0883e } .other { fill: #9198a1 } .spread { stroke: #f0f6fc }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
.title { font-weight: 600; font-size: 15px } .small { font-size: 12px }
"""


def chart(result: Mapping[str, Any]) -> str:
    """One panel per unit, one bar per measure: its median, with a line from quartile to quartile."""
    bars = [one for one in result["figures"] if one["unit"] != RATIO]
    panels = [(unit, list(group)) for unit, group in groupby(bars, key=lambda one: one["unit"])]
    parts, at = [], HEAD
    for unit, group in panels:
        parts.append(_panel(unit, group, at))
        at += PANEL + len(group) * (BAR + GAP)
    height = at + 34
    title, commit = result["title"], result["commit"]
    machine = result["machine"]
    foot = f"commit {commit} · {machine['cores']} cores, {machine['memory_gib']} GiB · bars: medians, lines: quartiles"
    if result.get("quick"):
        foot += " · a quick run, which says nothing about speed"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            f'<text class="text title" x="16" y="26">{escape(_short(title))}</text>',
            _legend(bars),
            *parts,
            f'<text class="faint small" x="16" y="{height - 12}">{escape(foot)}</text>',
            "</svg>\n",
        ]
    )


def _legend(bars: Sequence[Mapping[str, Any]]) -> str:
    sides = list(dict.fromkeys(one.get("side", "other") for one in bars))
    parts, x = [], 16
    for side in sides:
        name = side.capitalize()
        parts.append(f'<rect class="{side}" x="{x}" y="38" width="12" height="12"/>')
        parts.append(f'<text class="faint small" x="{x + 17}" y="48">{name}</text>')
        x += 80
    return "\n".join(parts)


def _panel(unit: str, bars: Sequence[Mapping[str, Any]], top: int) -> str:
    most = max(1e-9, *(one["quartiles"][1] for one in bars))
    scale = (WIDTH - LABELS - VALUES) / most
    better = "more is better" if unit.endswith("/s") else "less is better"
    lines = [f'<text class="faint small" x="{LABELS}" y="{top + 18}">{escape(unit)}, {better}</text>']
    bottom = top + PANEL + len(bars) * (BAR + GAP)
    lines.append(f'<line class="grid" x1="{LABELS}" y1="{top + 26}" x2="{LABELS}" y2="{bottom - GAP + 2}"/>')
    for number, one in enumerate(bars):
        lines.append(_bar(one, top + PANEL + number * (BAR + GAP), scale))
    return "\n".join(lines)


def _bar(one: Mapping[str, Any], y: int, scale: float) -> str:
    low, high = (LABELS + value * scale for value in one["quartiles"])
    width, middle, side = one["median"] * scale, y + BAR / 2, one.get("side", "other")
    end = max(high, LABELS + width)
    return "\n".join(
        [
            f'<text class="text" x="{LABELS - 8}" y="{y + 14}" text-anchor="end">{escape(one["what"])}</text>',
            f'<rect class="{side}" x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
            f'<line class="spread" x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke-width="2"/>',
            f'<text class="text" x="{end + 6:.1f}" y="{y + 14}">{escape(amount(one["median"]))}</text>',
        ]
    )


def _short(title: str, most: int = 120) -> str:
    return title if len(title) <= most else title[: most - 1] + "…"


def amount(value: float) -> str:
    """Three digits that a person can read."""
    for limit, sign in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / (limit if limit == 1e6 else 1e3):.3g}{sign}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
