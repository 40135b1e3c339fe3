"""Named points of an append and of a recovery. They do nothing, except in tests that kill the process there."""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def reached(name: str) -> None:
    if _hook is not None:
        _hook(name)


def set_hook(hook: Callable[[str], None] | None) -> None:
    global _hook  # noqa: PLW0603 - one process, one hook: the price of a free no-op in production
    _hook = hook
