"""The columns of a frame that is written, as in Spark's Kafka sink: checked when the query is planned, then cut into
what a produce request has, one batch for each topic. Other columns of the frame are left alone.

| column | types | |
|---|---|---|
| `value` | string, binary | required; null is a tombstone |
| `key` | string, binary | |
| `headers` | array of struct(`key` string, `value` binary) | left out with `includeHeaders` false |
| `topic` | string | required without the option `topic`, which wins |
| `partition` | int | null: by key, else in turn |
| `timestamp` | timestamp, or long in milliseconds | null or none: the time of the commit |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sluice.log_store.errors import InvalidConfig, InvalidRecord

_BYTES: tuple[type[DataType], ...] = (StringType, BinaryType)
_TYPES: Mapping[str, tuple[str, tuple[type[DataType], ...]]] = {
    "key": ("string or binary", _BYTES),
    "value": ("string or binary", _BYTES),
    "topic": ("string", (StringType,)),
    "partition": ("int", (IntegerType,)),
    "timestamp": ("timestamp, or long with milliseconds", (TimestampType, TimestampNTZType, LongType)),
}
_HEADERS_RULE = "array<struct<key:string,value:binary>>"
TOPIC, HEADERS = "topic", "headers"


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Which columns of the frame are used, by their place."""

    places: Mapping[str, int]
    topic: str | None
    """Where everything goes; None: the column says it."""

    @classmethod
    def of(cls, schema: StructType, *, topic: str | None, include_headers: bool) -> SinkColumns:
        """InvalidConfig with the column's name if the frame cannot be written."""
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            name = field.name.lower()
            if name not in _TYPES and name != HEADERS:
                continue
            if name in places:
                raise _wrong(name, "is there twice; names are compared without case")
            if name == TOPIC and topic is not None:
                continue
            if name == HEADERS and not include_headers:
                continue
            _check(name, field.dataType)
            places[name] = place
        if "value" not in places:
            raise _wrong("value", "must be there: string or binary")
        if topic is None and TOPIC not in places:
            raise _wrong(TOPIC, "must be there, or the option 'topic'")
        return cls(places, topic)

    def records(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows for each topic, in their order, with the columns of a produce request."""
        names = [name for name in self.places if name != TOPIC]
        records = pa.RecordBatch.from_arrays([batch.column(self.places[name]) for name in names], names=names)
        if self.topic is not None:
            yield self.topic, records
        else:
            yield from _by_topic(records, batch.column(self.places[TOPIC]))


def _by_topic(records: pa.RecordBatch, topics: pa.Array) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topics.null_count:
        raise InvalidRecord("column 'topic': is null in a row; fill it, or give the option 'topic'")
    coded = topics.dictionary_encode()
    names: list[str] = coded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], records
        return
    codes = coded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ordered = records.take(pa.array(order))
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1)).tolist()
    for name, (low, high) in zip(names, pairwise(bounds), strict=True):
        yield name, ordered.slice(low, high - low)


def _check(name: str, kind: DataType) -> None:
    if name == HEADERS:
        if not _is_headers(kind):
            raise _wrong(name, f"must be {_HEADERS_RULE}, not {kind.simpleString()}")
        return
    rule, types = _TYPES[name]
    if not isinstance(kind, types):
        raise _wrong(name, f"must be {rule}, not {kind.simpleString()}")


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _wrong(column: str, why: str) -> InvalidConfig:
    return InvalidConfig(f"column {column!r}: {why}", name=column)
