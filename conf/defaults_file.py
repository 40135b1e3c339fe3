"""Renders conf/defaults.toml from the declarations, so that the two cannot drift apart."""

from __future__ import annotations

import textwrap

from sluice.conf.declare import Key, Scalar, format_size, keys_of
from sluice.conf.settings import GROUPS

_HEADER = """\
# Every setting with its default. Generated: python -m sluice.conf > conf/defaults.toml
# A settings file needs only the keys that differ. Each key can also be given as an environment variable:
# SLUICE_ and the key in capitals with _ for each dot (wal.max.bytes -> SLUICE_WAL_MAX_BYTES).
"""


def render() -> str:
    parts = [_HEADER]
    for group in GROUPS.values():
        parts.append(f"\n# ---- {group.__doc__} ----\n")
        parts.extend(_entry(key) for _, key in keys_of(group))
    return "".join(parts)


def _entry(key: Key) -> str:
    comment = [*textwrap.wrap(key.doc, 110), f"({key.rule})"]
    lines = [f"# {line}" for line in comment]
    return "\n" + "\n".join([*lines, f"{key.name} = {_toml(key, key.default)}"]) + "\n"


def _toml(key: Key, value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f'"{format_size(value)}"' if key.is_size else str(value)
    return f'"{value}"'
