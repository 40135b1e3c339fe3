"""Files that commits removed lately, from the commits themselves: what a checkpoint may have forgotten (R-6)."""

from __future__ import annotations

from sluice.log_store.delta_log import decode_commit
from sluice.log_store.store import Store, StoreNotFound

CLOCKS_MS = 3_600_000
"""How far the clock of the store may be off: a few commits more are read than need be."""


def removed_since(store: Store, folder: str, since_ms: int) -> set[str]:
    """Names of the files that were removed at `since_ms` or later.

    Commits are kept for at least as long as the files they removed (R-3), so none of those that count is gone.
    """
    found: set[str] = set()
    for item in store.list(f"{folder}/_delta_log"):
        number, suffix = item.name[:20], item.name[20:]
        if suffix != ".json" or not number.isdigit() or item.modified_ms < since_ms - CLOCKS_MS:
            continue
        try:
            found.update(decode_commit(int(number), store.get(f"{folder}/_delta_log/{item.name}")).removes)
        except StoreNotFound:
            continue  # cleaned meanwhile: it was old enough
    return found
