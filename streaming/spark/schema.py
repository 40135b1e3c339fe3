"""The columns of the source: those of Spark's Kafka source, as a Spark schema and as an Arrow schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sluice.log_store.errors import InvalidConfig
from sluice.log_store.records import HEADERS, TIMESTAMP

HEADERS_COLUMN = "headers"

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), TIMESTAMP),
    "timestampType": (IntegerType(), pa.int32()),
    HEADERS_COLUMN: (ArrayType(_HEADER), HEADERS),
}
COLUMNS = tuple(name for name in _TYPES if name != HEADERS_COLUMN)

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""Values of `timestampType`."""


def spark_schema(columns: Sequence[str]) -> StructType:
    return StructType([StructField(name, _TYPES[name][0]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Spark compares the schema of the first batch to its own, nullability included."""
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in columns])


def check_schema(given: StructType, columns: Sequence[str]) -> None:
    """The schema is fixed by the options; one of the user's own is not cast to."""
    expected = spark_schema(columns)
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in expected]:
        raise InvalidConfig(
            f"the source has the schema {expected.simpleString()}, not {given.simpleString()}: "
            "choose columns with the option 'columns', and cast in the query",
            name="schema",
        )
