"""A whole topic as one relation of plain Delta tables: one SELECT per partition, which any Spark session can run.

Every partition is a table of its own and Delta has no globs, so the relation is a UNION ALL. Each branch names its
partition as a literal: a query with `WHERE partition = 3` opens that table only. Rows below the log start are left out:
until the next merge, the file that the log start falls into still holds some (R-11).

Nothing here needs Spark but `topic_view`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sluice.log_store.clock import SystemClock
from sluice.log_store.errors import InvalidRequest
from sluice.streaming.spark.address import ADDRESS_OPTIONS, STORAGE_PREFIX, Address
from sluice.streaming.spark.option_values import OptionValues
from sluice.streaming.spark.retrying import Retry
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.subscriptions import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "key": "BINARY",
    "value": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Of the relation, in this order, with their types in Spark SQL."""


@dataclass(frozen=True, slots=True)
class PartitionTable:
    partition: int
    location: str
    """As Spark opens it: a folder, or an address of an object store."""
    log_start: int


@dataclass(frozen=True, slots=True)
class TopicTables:
    topic: str
    tables: tuple[PartitionTable, ...]
    unwritten: tuple[int, ...] = ()
    """Partitions that have no table yet."""


# --- finding the tables ---------------------------------------------------------------------------


def find_tables(
    where: str, topic: str, token: str | None = None, ca_file: str | None = None, **storage: str
) -> TopicTables:
    """The tables of a topic. `where` is a storage root, or the address of a service, which is asked for its root.

    `storage` are options of the source, such as `s3.endpoint`. A re-created topic has a folder of its own, which the
    catalog knows (R-8).
    """
    place = "server" if where.startswith(("http://", "https://")) else "path"
    given = {place: where, "token": token, "ca.file": ca_file, **storage}
    values = OptionValues({name: value for name, value in given.items() if value}, ADDRESS_OPTIONS, (STORAGE_PREFIX,))
    lake = Lake(Address.parse(values, os.environ), SystemClock(), Retry(times=3, interval_ms=500))
    refs = lake.subscribed(Topics((topic,)), all_there=True)
    tables, unwritten = [], []
    for ref, view in lake.views(refs).items():
        if view.problem is not None:
            raise view.problem
        if view.end > 0 or lake.store.list(f"{ref.folder}/_delta_log"):
            tables.append(PartitionTable(ref.partition, location(lake.store.url, ref.folder), view.log_start))
        else:
            unwritten.append(ref.partition)
    return TopicTables(topic, tuple(sorted(tables, key=lambda table: table.partition)), tuple(sorted(unwritten)))


def location(root: str, folder: str) -> str:
    """Where Spark finds a folder of the root. Hadoop calls S3 `s3a`, and wants local paths as they are."""
    if root.startswith("memory:"):
        raise InvalidRequest(f"only the service itself can read {root}", field="path")
    if root.startswith("file:"):
        return f"{unquote(urlsplit(root).path).rstrip('/')}/{folder}"
    if root.startswith("s3://"):
        root = f"s3a://{root.removeprefix('s3://')}"
    return f"{root.rstrip('/')}/{folder}"


# --- SQL ------------------------------------------------------------------------------------------


def select_sql(found: TopicTables) -> str:
    """The relation. A topic without a table yet is an empty one with the same columns."""
    if not found.tables:
        columns = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in COLUMNS.items())
        return f"SELECT {columns} WHERE false"
    return "\nUNION ALL\n".join(_branch(found.topic, table) for table in found.tables)


def _branch(topic: str, table: PartitionTable) -> str:
    stored = ", ".join(quoted(name) for name in COLUMNS if name not in ("topic", "partition"))
    where = f" WHERE {quoted('offset')} >= {table.log_start}" if table.log_start > 0 else ""
    origin = f"{literal(topic)} AS {quoted('topic')}, {table.partition} AS {quoted('partition')}"
    return f"SELECT {origin}, {stored} FROM delta.{quoted(table.location)}{where}"  # noqa: S608 - quoted


def view_sql(found: TopicTables, name: str | None = None, *, temporary: bool = False) -> str:
    """A whole statement. Without a name the view is called as the topic, which need not be a word of SQL."""
    kind = "TEMPORARY VIEW" if temporary else "VIEW"
    called = ".".join(quoted(part) for part in ([found.topic] if name is None else name.split(".")))
    return f"CREATE OR REPLACE {kind} {called} AS\n{select_sql(found)}"


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """As Spark SQL reads it: a backslash begins an escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literals(texts: Iterable[str]) -> str:
    return ", ".join(literal(text) for text in texts)


# --- Spark ----------------------------------------------------------------------------------------


def topic_view(
    spark: SparkSession,
    where: str,
    topic: str,
    *,
    name: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    **storage: str,
) -> DataFrame:
    """The topic as a DataFrame, and as a temporary view called `name` (default: as the topic).

    `where` is the storage root, or the address of a service. Queries see what is committed when they run; call it again
    after partitions were added or records were deleted.
    """
    found = find_tables(where, topic, token, ca_file, **storage)
    frame = spark.sql(select_sql(found))
    frame.createOrReplaceTempView(quoted(topic if name is None else name))
    return frame
