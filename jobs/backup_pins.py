"""One partition at one version, as a backup keeps it: its data files, and a log that begins at this version."""

from __future__ import annotations

import zlib
from dataclasses import replace

from sluice.jobs.backup_manifest import PartitionCopy, StoredFile
from sluice.log_store import snapshot
from sluice.log_store.checkpoint_file import encode_checkpoint, encode_hint
from sluice.log_store.delta_log import DataFile, commit_path
from sluice.log_store.errors import CorruptData
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.store import Store
from sluice.log_store.values import PartitionRef


class Pin:
    """A partition read once. Nothing of the source is needed for its log afterwards, only its data files."""

    def __init__(self, store: Store, ref: PartitionRef) -> None:
        loaded = snapshot.load(store, ref.folder)
        if loaded.problem is not None:
            raise CorruptData(f"{ref.tp} cannot be backed up: {loaded.problem.message}")
        self.ref = ref
        self.state = loaded.state
        self.log = _log_files(store, ref.folder, loaded.state) if loaded.state.exists else {}

    @property
    def exists(self) -> bool:
        """A partition that was never written has no table (R-8)."""
        return self.state.exists

    def copy(self) -> PartitionCopy:
        state, ref = self.state, self.ref
        return PartitionCopy(
            topic=ref.topic,
            topic_id=ref.topic_id,
            partition=ref.partition,
            folder=ref.folder,
            version=state.version,
            epoch=state.epoch,
            log_start=state.log_start,
            end=state.end,
            records=sum(file.records for file in state.files),
            data=tuple(_data(ref, file) for file in state.files),
            log=tuple(_stored_log(ref, path, data) for path, data in self.log.items()),
        )

    def log_bytes(self, file: StoredFile) -> bytes:
        return self.log[file.path]


def _log_files(store: Store, folder: str, state: PartitionState) -> dict[str, bytes]:
    """A pair of state snapshot and checkpoint at the pinned version (R-5) and the commit of that version: all that a
    leader and every Delta reader need to go on from there."""
    # Files that were removed earlier are not copied: nobody must look for them.
    kept = replace(state, removed={})
    content = kept.checkpoint_content()
    checkpoint = encode_checkpoint(content)
    return {
        commit_path(folder, state.version): store.get(commit_path(folder, state.version)),
        snapshot.state_path(folder, state.version): kept.to_snapshot(),
        snapshot.checkpoint_path(folder, state.version): checkpoint,
        f"{folder}/_delta_log/_last_checkpoint": encode_hint(content, len(checkpoint)),
    }


def _data(ref: PartitionRef, file: DataFile) -> StoredFile:
    if file.file_crc is None:
        raise CorruptData(f"{ref.folder}/{file.path} has no checksum in its log", file=file.path)
    return StoredFile(f"{ref.folder}/{file.path}", file.size, file.file_crc)


def _stored_log(ref: PartitionRef, path: str, data: bytes) -> StoredFile:
    """By its checksum too: a version can be written anew after a power loss (I-10), with other bytes."""
    crc = zlib.crc32(data)
    return StoredFile(path, len(data), crc, f"{ref.folder}/log/{path.rpartition('/')[2]}.{crc:08x}")
