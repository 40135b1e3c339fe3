"""Copies files between two stores, each checked by its CRC-32 on the way; what is there already is left alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from sluice.jobs.backup_manifest import StoredFile
from sluice.log_store.errors import CorruptData
from sluice.log_store.store import Store, StoreConflict, StoreNotFound

THREADS = 8


class SourceVanished(Exception):
    """The file is gone from the source: the partition moved on (I-9)."""


@dataclass(slots=True)
class Copied:
    files: int = 0
    bytes: int = 0
    there: int = 0
    """Files that an earlier run had copied."""

    def add(self, other: Copied) -> None:
        self.files += other.files
        self.bytes += other.bytes
        self.there += other.there


def present(store: Store, places: Iterable[str]) -> dict[str, int]:
    """Sizes of what is stored in the folders of these places: one listing each, not a question per file."""
    folders = {place.rpartition("/")[0] for place in places}
    return {f"{folder}/{item.name}": item.size for folder in folders for item in store.list(folder)}


def copy_files(
    source: Store,
    target: Store,
    files: Sequence[StoredFile],
    *,
    where_from: Callable[[StoredFile], str],
    where_to: Callable[[StoredFile], str],
    check: Callable[[], None] = lambda: None,
) -> Copied:
    """Copy what is missing, or has another size because an earlier run was killed over it; then make it durable."""
    sizes = present(target, map(where_to, files))
    missing = [file for file in files if sizes.get(where_to(file)) != file.size]

    def one(file: StoredFile) -> None:
        check()
        put_whole(target, where_to(file), _read(source, where_from(file), file))

    with ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-copy") as pool:
        for future in [pool.submit(one, file) for file in missing]:
            future.result()
    target.sync([where_to(file) for file in missing])
    return Copied(len(missing), sum(file.size for file in missing), len(files) - len(missing))


def _read(source: Store, path: str, file: StoredFile) -> bytes:
    try:
        data = source.get(path)
    except StoreNotFound as error:
        raise SourceVanished(path) from error
    if len(data) != file.size or zlib.crc32(data) != file.crc:
        raise CorruptData(
            f"{path} is damaged: {len(data)} bytes with checksum {zlib.crc32(data):08x} "
            f"instead of {file.size} with {file.crc:08x}",
            file=path,
        )
    return data


def put_whole(target: Store, path: str, data: bytes) -> None:
    try:
        target.put(path, data)
    except StoreConflict:
        # Half a file of a run that was killed; or whole, of another run that was faster: the bytes are the same.
        target.replace(path, data)


def delete_all(store: Store, paths: Sequence[str]) -> None:
    with ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-prune") as pool:
        for future in [pool.submit(store.delete, path) for path in paths]:
            with suppress(StoreNotFound):
                future.result()
