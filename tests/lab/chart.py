"""Small SVG charts, one below the other: a line over time for each figure of a soak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, GAP = 720, 110, 34
LEFT, RIGHT = 90, 10


def charts(title: str, times: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """`times` in seconds; every series begins at zero, so that a slope is not made to look steeper than it is."""
    total = GAP + len(series) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{total}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, values) in enumerate(series.items()):
        parts.append(_panel(name, times, values, GAP + number * (HEIGHT + GAP)))
    return "\n".join([*parts, "</svg>\n"])


def _panel(name: str, times: Sequence[float], values: Sequence[float], top: int) -> str:
    high, last = max([*values, 1e-9]), max([*times, 1e-9])
    width, bottom = WIDTH - LEFT - RIGHT, top + HEIGHT
    points = " ".join(
        f"{LEFT + width * t / last:.1f},{bottom - (HEIGHT - 6) * value / high:.1f}"
        for t, value in zip(times, values, strict=True)
    )
    return "\n".join(
        [
            f'<path d="M{LEFT},{top} V{bottom} H{WIDTH - RIGHT}" fill="none" stroke="#888"/>',
            f'<text x="{LEFT - 6}" y="{top + 12}" text-anchor="end">{high:,.4g}</text>',
            f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
            f'<text x="{LEFT + 6}" y="{top + 4}">{escape(name)}</text>',
            f'<text x="{WIDTH - RIGHT}" y="{bottom + 14}" text-anchor="end">{last / 60:.1f} min</text>',
            f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
        ]
    )
