"""`sluice dump` and `sluice log-dirs`: what lies in storage. With a root they need no server; they change nothing."""

from __future__ import annotations

import dataclasses
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from sluice.api.client import FetchedRecord, SluiceClient
from sluice.api.commands.common import (
    SERVER,
    AsJson,
    CaFile,
    Server,
    Token,
    connected,
    fail,
    print_json,
    print_rows,
    reported,
)
from sluice.api.commands.offline import NoServer, NoToken
from sluice.api.commands.printing import envelope
from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import Settings, load_settings
from sluice.log_store import inspection, reader, snapshot
from sluice.log_store.delta_log import Commit, DataFile, decode_commit
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.records import micros_of
from sluice.log_store.store import Store, StoreNotFound, open_store

Root = Annotated[
    str | None, typer.Option("--root", help="Storage root; default: the setting storage.root.", show_default=False)
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", envvar="SLUICE_CONFIG", help="Settings file (TOML).", show_default=False)
]
_PARTITION = re.compile(r"(?P<topic>.+)[-/](?P<number>\d+)")


def log_dirs(
    root: Annotated[
        str | None, typer.Option("--root", help="Look at this storage root instead of asking.", show_default=False)
    ] = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the bytes and files of every partition."""
    if root is None:
        with connected(server, token, ca_file) as client:
            rows = list(_asked(client))
    else:
        with reported():
            look = inspection.inspect(_store(root, None))
        if look is None:
            fail(f"there is no cluster at {root}")
        rows = [_looked_at(partition) for partition in look.partitions]
    print_rows(rows, as_json)


def _asked(client: SluiceClient) -> Iterator[dict[str, object]]:
    path: str | None = "/v3/clusters/-/brokers/0/log-dirs?internal=true"
    while path is not None:
        answer = client.connection.json("GET", path, repeatable=True)
        for one in answer["data"]:
            yield {
                "topic": one["topic_name"],
                "partition": one["partition_id"],
                "bytes": one.get("size_bytes"),
                "files": one.get("files"),
                "small": one.get("small_files"),
                "log_start": one.get("log_start_offset"),
                "high_watermark": one.get("high_watermark"),
                "version": one.get("version"),
                "problem": one["problem"] or "",
            }
        link = answer["metadata"]["next"]
        path = None if link is None else f"/v3/{link.partition('/v3/')[2]}"


def _looked_at(one: inspection.PartitionLook) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "bytes": one.live_bytes,
        "files": one.live_files,
        "small": one.small_files,
        "log_start": one.log_start,
        "high_watermark": one.high_watermark,
        "version": one.version,
        "problem": one.problem,
    }


def dump(
    target: Annotated[
        str, typer.Argument(help="TOPIC/PARTITION, a .parquet file or a commit .json.", show_default=False)
    ],
    records: Annotated[
        int, typer.Option("-n", "--records", min=0, help="Also print this many records, one JSON line each.")
    ] = 0,
    root: Root = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    _server: NoServer = None,
    _token: NoToken = None,
) -> None:
    """Show what is in a data file, in a commit, or in a whole partition."""
    with reported():
        if target.endswith((".parquet", ".json")):
            name, data = os.path.basename(target), _bytes_of(target, root, config)
            shown, table = _file(data) if target.endswith(".parquet") else (_commit(name, data), None)
        else:
            shown, table = _partition(_store(root, config), target, records)
    _print(shown, as_json)
    if table is not None and records:
        _print_records(
            shown.get("topic", os.path.basename(target)), shown.get("partition", -1), table.slice(0, records)
        )


def _store(root: str | None, config: Path | None) -> Store:
    storage = _settings(config).storage
    if root is not None:
        storage = dataclasses.replace(storage, root=root)
    if "://" not in storage.root and not os.path.isdir(storage.root):
        fail(f"{storage.root} does not exist")
    return open_store(storage.root, fsync=storage.fsync, storage_options=storage.options)


def _settings(config: Path | None) -> Settings:
    try:
        return load_settings(config, os.environ)
    except ConfigurationError as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(code=2) from error


def _bytes_of(target: str, root: str | None, config: Path | None) -> bytes:
    """A file of this machine, else a path below the root."""
    if os.path.isfile(target):
        return Path(target).read_bytes()
    try:
        return _store(root, config).get(target)
    except (StoreNotFound, ValueError):
        fail(f"{target}: there is no such file, neither here nor below the root")


def _file(data: bytes) -> tuple[dict[str, Any], pa.Table]:
    try:
        with pq.ParquetFile(io.BytesIO(data)) as file:
            meta, table = file.metadata, file.read()
    except (pa.ArrowException, OSError) as error:
        fail(f"this is no readable Parquet file: {error}")
    offsets = table.column("offset").to_pylist() if "offset" in table.column_names else []
    shown = {
        "bytes": len(data),
        "records": meta.num_rows,
        "row_groups": meta.num_row_groups,
        "first_offset": offsets[0] if offsets else None,
        "last_offset": offsets[-1] if offsets else None,
        "created_by": meta.created_by,
        "columns": table.column_names,
    }
    return shown, table


def _commit(name: str, data: bytes) -> dict[str, Any]:
    if not name[:-5].isdecimal():
        raise InvalidRequest(f"{name} is no commit: its name must be a version and .json")
    return _shown_commit(decode_commit(int(name[:-5]), data))


def _shown_commit(commit: Commit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "commit_id": commit.commit_id,
        "timestamp_ms": commit.timestamp_ms,
        "written_by": "sluice" if commit.ours else commit.engine,
        "details": dict(commit.details),
        "adds": [_shown_file(file) for file in commit.adds],
        "removes": list(commit.removes),
    }


def _shown_file(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "bytes": file.size,
        "records": file.records,
        "base_offset": file.base_offset,
        "end_offset": file.end_offset,
        "min_ms": file.min_ms,
        "max_ms": file.max_ms,
    }


def _partition(store: Store, target: str, wanted: int) -> tuple[dict[str, Any], pa.Table | None]:
    found = _PARTITION.fullmatch(target)
    ref = inspection.find_partition(store, found["topic"], int(found["number"])) if found else None
    if ref is None:
        fail(f"{target}: the root has no such partition (TOPIC/NUMBER)")
    loaded = snapshot.load(store, ref.folder)
    state = loaded.state
    shown = {
        "topic": ref.topic,
        "partition": ref.partition,
        "folder": ref.folder,
        "version": state.version,
        "epoch": state.epoch,
        "log_start": state.log_start,
        "high_watermark": state.end,
        "problem": loaded.problem.message if loaded.problem is not None else None,
        "files": [_shown_file(file) for file in state.files],
    }
    end = min(state.end, state.log_start + wanted)
    if end <= state.log_start:
        return shown, None
    return shown, pa.Table.from_batches(reader.scan(store, ref.folder, state.files, state.log_start, end))


def _print(shown: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            print_rows(value, as_json=False, title=name)
        else:
            typer.echo(f"{name:>15}  {value}")


def _print_records(topic: str, partition: int, table: pa.Table) -> None:
    stamps = (micros_of(table.column("timestamp")) // 1000).tolist()
    for row, stamp in zip(table.drop_columns(["timestamp"]).to_pylist(), stamps, strict=True):
        record = FetchedRecord(
            topic=topic,
            partition=partition,
            offset=row["offset"],
            timestamp_ms=stamp,
            key=row["key"],
            value=row["value"],
            headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        typer.echo(envelope(record).decode(), nl=False)
