"""Where the rest of the time goes, for every target that was missed and every ratio in which a peer is ahead.

A reason is words; each figure in it is fetched from the results, as `{benchmark: figure}`, so that none is typed by
hand. One whose figure is not there is shown with "not measured" in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_FIGURE = re.compile(r"\{([^:{}]+): ([^{}]+)\}")

REASONS: dict[tuple[str, str], str] = {}
"""By benchmark and beginning of the figure's name; the longest one that fits is taken."""


def reason_for(section: str, what: str, value: Callable[[str, str], str]) -> str | None:
    """`value(benchmark, figure)` is the figure as it is shown."""
    fitting = [key for key in REASONS if key[0] == section and what.startswith(key[1])]
    if not fitting:
        return None
    text = REASONS[max(fitting, key=lambda key: len(key[1]))]
    return _FIGURE.sub(lambda match: value(match[1], match[2]), text)
