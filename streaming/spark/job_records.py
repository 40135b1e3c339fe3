"""The user's function on single records, run on the executors: it may change a record, leave it out or reject it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec
import pyarrow as pa

from sluice.log_store.errors import InvalidConfig

ERROR = "__error"
"""Column: why a record was rejected; null for the others."""

Header = tuple[str, bytes | None]

# What code raises when the data is not as it expects. Anything else is a fault of the code or of something it needs:
# sending records away for that would lose the whole topic to a network that is down for a minute.
REJECTING = (ValueError, TypeError, LookupError, ArithmeticError)


class Rejected(ValueError):
    """Raised by a function: this record is to go to the dead-letter topic, for this reason."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    def json(self) -> Any:
        """The value as JSON; `Rejected` if it is none."""
        try:
            return msgspec.json.decode(self.value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Rejected(f"the value is not valid JSON: {error}") from None


RecordFunction = Callable[[ConsumedRecord], object]


def load_function(name: str, option: str) -> Callable[..., Any]:
    """`module:function`; the module is looked for in the current folder too, and on executors in --py-files."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        places = "--py-files or the current folder"
        raise InvalidConfig(f"{option} {name}: there is no module {error.name!r} in {places}", name=option) from None
    except AttributeError:
        raise InvalidConfig(f"{option} {name}: {module} has no {attribute!r}", name=option) from None
    if not callable(function):
        raise InvalidConfig(f"{option} {name}: is not a function", name=option)
    return cast("Callable[..., Any]", function)


def apply_to_batches(name: str, tolerant: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the same columns, and the reason of each rejection. If not `tolerant`, a rejection fails."""
    function = load_function(name, "--each")
    for batch in batches:
        yield applied(function, batch, tolerant=tolerant)


def applied(function: RecordFunction, batch: pa.RecordBatch, *, tolerant: bool) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = []
    for row in batch.to_pylist():
        record = _record(row)
        try:
            changed = _changed(row, record, function(record))
        except REJECTING as error:
            if not tolerant:
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise InvalidConfig(f"{where} was rejected and there is no --dead-letter: {_reason(error)}") from error
            changed = row | {ERROR: _reason(error)}
        if changed is not None:
            rows.append(changed)
    schema = batch.schema.append(pa.field(ERROR, pa.string()))
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _record(row: dict[str, Any]) -> ConsumedRecord:
    return ConsumedRecord(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp=row["timestamp"],
        key=row["key"],
        value=row["value"],
        headers=tuple((header["key"], header["value"]) for header in row.get("headers") or ()),
    )


def _changed(row: dict[str, Any], record: ConsumedRecord, result: object) -> dict[str, Any] | None:
    """None: leave it out. A record keeps its origin whatever the function says: it is what makes it unique."""
    if result is None:
        return None
    if result is record:
        return row
    if isinstance(result, ConsumedRecord):
        changed = row | {"key": result.key, "value": result.value, "timestamp": result.timestamp}
        if "headers" in row:
            changed["headers"] = [{"key": key, "value": value} for key, value in result.headers]
        return changed
    if isinstance(result, bytes | bytearray | memoryview):
        return row | {"value": bytes(result)}
    if isinstance(result, str):
        return row | {"value": result.encode()}
    return row | {"value": msgspec.json.encode(result)}


def _reason(error: Exception) -> str:
    if isinstance(error, Rejected):
        return str(error) or "rejected"
    return f"{type(error).__name__}: {error}"
