"""The place where a Spark sink leaves its rows before they are appended, and what is remembered about its batches.

::

    _sluice/staging/<query>/<20-digit batch>/<part>           Arrow, uploaded by the tasks of the batch
    _sluice/staging/<query>/<20-digit batch>/manifest.json    what the first commit of the batch named
    _sluice/sinks/<query>/<20-digit batch>.done               the batch is in the log, all of it
    _sluice/sinks/<query>/owner                               name of the user who began it, where there are tokens

A manifest is made once, before anything is appended, and never changed: whoever repeats the commit, perhaps after its
tasks ran anew and left other parts in another order, goes on with the parts of the first. The mark of a batch that is
done is made after its last row was committed; the newest one counts, older ones are deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from sluice.log_store.errors import CorruptData, InvalidRequest, UnsupportedFormat
from sluice.log_store.sinks import DAY_MS, check_batch_id, check_query_id, kept_ms
from sluice.log_store.store import Listed, Store, StoreConflict, StoreNotFound

STAGING, MARKS = "_sluice/staging", "_sluice/sinks"
MANIFEST, OWNER = "manifest.json", "owner"
FORMAT = 1
DIRECT_SUFFIX, HTTP_SUFFIX = ".direct.arrows", ".http.arrows"
"""How a part came: written to storage by its task, or through the service, which has counted it against quotas."""
_DONE = ".done"
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,149}\.(direct|http)\.arrows")


class Part(msgspec.Struct, frozen=True):
    """An Arrow IPC stream with records for one topic, as a produce request has them."""

    name: str
    topic: str
    rows: int
    size: int
    crc: int

    @property
    def counted(self) -> bool:
        """Whether quotas have seen its bytes."""
        return self.name.endswith(HTTP_SUFFIX)


class PinnedTopic(msgspec.Struct, frozen=True):
    """What the topic was when the batch was first committed: its rows go where they were to go then."""

    id: str
    partitions: int


class Manifest(msgspec.Struct, frozen=True):
    query: str
    batch: int
    now_ms: int
    """The time of records that have none."""
    topics: Mapping[str, PinnedTopic]
    parts: tuple[Part, ...]
    """In order; the place of a part is the number of its piece."""
    format: int = FORMAT


def check_part_name(name: str) -> str:
    if _PART.fullmatch(name) is None:
        raise InvalidRequest(
            f"part {name[:80]!r}: must have letters, digits, '.', '_' or '-' and end with {DIRECT_SUFFIX} or "
            f"{HTTP_SUFFIX}, 170 characters at most",
            field="name",
        )
    return name


def part_path(query: str, batch: int, name: str) -> str:
    return f"{batch_folder(query, batch)}/{check_part_name(name)}"


def batch_folder(query: str, batch: int) -> str:
    return f"{STAGING}/{check_query_id(query)}/{check_batch_id(batch):020d}"


# --- the manifest --------------------------------------------------------------------------------


def read_manifest(store: Store, query: str, batch: int) -> Manifest | None:
    path = f"{batch_folder(query, batch)}/{MANIFEST}"
    try:
        data = store.get(path)
    except StoreNotFound:
        return None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise CorruptData(f"{path} is damaged: {error}") from error
    if manifest.format > FORMAT:
        raise UnsupportedFormat(f"{path} has format {manifest.format}: it needs a newer Sluice")
    return manifest


def pin(store: Store, manifest: Manifest) -> Manifest:
    """Make the manifest of the batch, on disk with everything it names; answers the one that was there before."""
    folder = batch_folder(manifest.query, manifest.batch)
    store.sync(f"{folder}/{part.name}" for part in manifest.parts)
    with suppress(StoreConflict):
        store.put_if_absent(f"{folder}/{MANIFEST}", msgspec.json.encode(manifest), sync=True)
    found = read_manifest(store, manifest.query, manifest.batch)
    if found is None:
        raise CorruptData(f"{folder}/{MANIFEST} is gone: somebody deletes what is staged")
    return found


def drop(store: Store, query: str, batch: int) -> bool:
    """Delete what an aborted batch staged, but nothing that a commit has named."""
    if read_manifest(store, query, batch) is not None:
        return False
    store.delete_folder(batch_folder(query, batch))
    return True


# --- what is done --------------------------------------------------------------------------------


def last_done(store: Store, query: str) -> int | None:
    """The newest batch of the query that is in the log as a whole."""
    marks = _marks(store.list(f"{MARKS}/{check_query_id(query)}"))
    return max(marks, default=None)


def _marks(listing: Iterable[Listed]) -> dict[int, int]:
    """Batches that are done, and when (wall ms)."""
    found = (item for item in listing if item.name.endswith(_DONE) and item.name[:20].isdigit())
    return {int(item.name[:20]): item.modified_ms for item in found}


def mark_done(store: Store, query: str, batch: int) -> None:
    """Remember it for good, then let go of what was staged. A crash on the way leaves something to sweep."""
    folder = f"{MARKS}/{check_query_id(query)}"
    with suppress(StoreConflict):
        store.put_if_absent(f"{folder}/{batch:020d}{_DONE}", b"done\n", sync=True)
    store.delete_folder(batch_folder(query, batch))
    for older in _marks(store.list(folder)):
        if older < batch:
            store.delete(f"{folder}/{older:020d}{_DONE}")


# --- whose it is ---------------------------------------------------------------------------------


def owner_of(store: Store, query: str) -> str | None:
    """None: nobody's yet, or of a time without tokens."""
    try:
        return store.get(_owner_path(query)).decode().rstrip("\n")
    except StoreNotFound:
        return None
    except UnicodeDecodeError as error:
        raise CorruptData(f"{_owner_path(query)} is damaged: {error}") from error


def claim(store: Store, query: str, user: str) -> str:
    """Make it the user's unless it has an owner; answers the one it has now."""
    found = owner_of(store, query)
    if found is not None:
        return found
    with suppress(StoreConflict):
        store.put_if_absent(_owner_path(query), f"{user}\n".encode(), sync=True)
    return owner_of(store, query) or user


def _owner_path(query: str) -> str:
    return f"{MARKS}/{check_query_id(query)}/{OWNER}"


# --- the sweep -----------------------------------------------------------------------------------


def abandoned(listing: Sequence[Listed], query: str, done: bool, now_ms: int, orphan_retention_ms: int) -> bool:
    """May the folder of a batch go? A pure choice.

    Of a batch that is done: yes. With a manifest it may be half appended, so it stays for as long as the partitions
    remember the query. Without one nothing of it is in the log, and its query would have to run it anew anyway.
    """
    if done:
        return True
    newest = max((item.modified_ms for item in listing), default=0)
    kept = kept_ms(query) if any(item.name == MANIFEST for item in listing) else orphan_retention_ms
    return now_ms - newest >= kept


def sweep(store: Store, now_ms: int, orphan_retention_ms: int) -> int:
    """Delete what nobody will come back for; answers how many batches and queries. The caller trusts its clock."""
    gone, staged = 0, set()
    for query in store.list_folders(STAGING):
        marks = _marks(store.list(f"{MARKS}/{query}"))
        folders = [name for name in store.list_folders(f"{STAGING}/{query}") if name.isdigit()]
        for name in folders:
            folder = f"{STAGING}/{query}/{name}"
            done = int(name) <= max(marks, default=-1)
            if abandoned(store.list(folder), query, done, now_ms, orphan_retention_ms):
                store.delete_folder(folder)
                gone += 1
            else:
                staged.add(query)
        # Only of a query that has been silent for a day: the next batch might be on its way into the folder.
        if not folders and now_ms - max(marks.values(), default=0) >= DAY_MS:
            store.delete_folder(f"{STAGING}/{query}")
    for query in store.list_folders(MARKS):
        newest = max((item.modified_ms for item in store.list(f"{MARKS}/{query}")), default=now_ms)
        if query not in staged and now_ms - newest >= kept_ms(query):
            store.delete_folder(f"{MARKS}/{query}")
            gone += 1
    return gone
