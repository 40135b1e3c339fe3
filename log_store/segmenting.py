"""Turn a group of batches into data files, none of which crosses a segment boundary (R-10)."""

from __future__ import annotations

import pyarrow as pa

from sluice.log_store.committer import Append, Committer
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import StorageError
from sluice.log_store.pending import Pending
from sluice.log_store.records import stored_table
from sluice.log_store.segments import ActiveSegment, should_roll
from sluice.log_store.topic import TopicConfig, codec


def write_group(
    group: list[Pending], committer: Committer, active: ActiveSegment | None, config: TopicConfig, now_ms: int
) -> Append:
    """Put the files of one version and say what its commit must record about them."""
    files: list[DataFile] = []
    try:
        return _write_group(group, committer, active, config, now_ms, files)
    except StorageError:
        # No commit names them yet: on a disk that is full, every retry would leave some more.
        committer.drop_files(files)
        raise


def _write_group(
    group: list[Pending],
    committer: Committer,
    active: ActiveSegment | None,
    config: TopicConfig,
    now_ms: int,
    files: list[DataFile],
) -> Append:
    active = active or ActiveSegment(base_offset=group[0].base_offset)
    rolls: list[int] = []
    tables: list[pa.Table] = []
    rest = group
    while rest:
        run = _next_run(rest, active, config, now_ms)
        rest = rest[len(run) :]
        table = stored_table([pending.batch for pending in run], run[0].base_offset)
        tables.append(table)
        file = committer.put_file(table, codec(config.compression_type))
        if should_roll(active, file.size, file.max_ms, file.end_offset, config, now_ms):
            rolls.append(file.base_offset)
            active = ActiveSegment(base_offset=file.base_offset)
        # The age of a segment counts from its first batch, not from its first file.
        active = active.after(file.size, run[0].max_ms, now_ms).after(0, file.max_ms, now_ms)
        files.append(file)
    return Append(
        files=tuple(files),
        end=group[-1].end_offset,
        append_ms=group[-1].append_ms,
        producers=[entry for pending in group if (entry := pending.producer_entry()) is not None],
        rolls=rolls,
        active=active,
        sinks=[sink for pending in group if (sink := pending.sink_entry()) is not None],
        rows=tables[0] if len(tables) == 1 else pa.concat_tables(tables),
    )


def _next_run(rest: list[Pending], active: ActiveSegment, config: TopicConfig, now_ms: int) -> list[Pending]:
    """The batches at the head of `rest` that fit into one file: a segment may begin with the first, with none after it.

    Stored bytes are known only after encoding; uncompressed bytes bound them from above.
    """
    size = 0
    for index, pending in enumerate(rest):
        rolls = should_roll(active, 0, pending.max_ms, pending.end_offset, config, now_ms)
        if index and (rolls or size + pending.size > config.segment_bytes):
            return rest[:index]
        if rolls:
            active = ActiveSegment(base_offset=pending.base_offset)
        active = active.after(1, pending.max_ms, now_ms)
        size += pending.size
    return rest
