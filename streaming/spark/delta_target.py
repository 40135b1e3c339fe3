"""A Delta table that a consumer job writes to, each record exactly once.

Every row carries where it came from: `__topic`, `__partition`, `__offset`. There are two ways to write a batch:

- `append`, for a job that reads alone. The commit carries the query's id and the batch's number as a Delta transaction
  id: a batch that is run again after a crash is skipped by Delta as a whole.
- `merge`, for members of a group, where another member may have written the same records under another query: one
  that took over, or one that was paused and woke up. Only rows whose origin is not in the table yet are inserted. The
  batch's offsets are in the condition as literals, so that Delta opens only files that may hold such rows; and the
  table is partitioned by origin, so that members with different partitions do not conflict. Those that do are
  serialised by Delta: one of them fails, and is repeated here against what the other has written.

Offsets of a topic that was deleted and made again begin at 0, and its rows would be taken for repeats. So the table
remembers the id of each topic (R-8), and another one is refused.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sluice.log_store.errors import InvalidConfig
from sluice.log_store.values import OffsetRange, TopicPartition
from sluice.streaming.spark.views import literal, literals, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

logger = logging.getLogger("sluice.spark")

TOPIC, PARTITION, OFFSET = "__topic", "__partition", "__offset"
ORIGIN = (TOPIC, PARTITION, OFFSET)
TOPIC_ID_PROPERTY = "sluice.topic_id."

CONFLICT_ATTEMPTS = 12
CREATE_ATTEMPTS = 8
"""Some 13 s: that the folder is not empty may also mean that nobody will make it a table."""
CONFLICT_FIRST_S, CONFLICT_LONGEST_S = 0.1, 10.0

# Delta's error conditions for "another commit came first; do it again".
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_CONFLICT_CLASSES = ("io.delta.exceptions.Concurrent", "io.delta.exceptions.MetadataChanged")
_BEING_CREATED = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_NO_TABLE = ("DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")


# --- pure ------------------------------------------------------------------------------------------


def merge_condition(ranges: Mapping[TopicPartition, OffsetRange]) -> str:
    """Equal origin, among the rows that `may_hold` names."""
    same = " AND ".join(f"t.{name} = s.{name}" for name in ORIGIN)
    return f"{same} AND {may_hold(ranges, 't.')}"


def may_hold(ranges: Mapping[TopicPartition, OffsetRange], prefix: str = "") -> str:
    """What lets Delta leave out files: the partitions by themselves, then each with its offsets.

    The first part selects folders, and is what Delta compares with the commits of others. The second is judged by the
    statistics of files, where Delta sees the offsets only: with both ends of each range, a partition that is far behind
    costs the others a file or two, not all of theirs.
    """
    topics = literals(sorted({tp.topic for tp in ranges}))
    numbers = ", ".join(map(str, sorted({tp.partition for tp in ranges})))
    topic, partition, offset = (prefix + name for name in ORIGIN)
    bounds = " OR ".join(
        f"({topic} = {literal(tp.topic)} AND {partition} = {tp.partition}"
        f" AND {offset} >= {found.start} AND {offset} < {found.end})"
        for tp, found in sorted(ranges.items(), key=lambda item: (item[0].topic, item[0].partition))
    )
    return f"{topic} IN ({topics}) AND {partition} IN ({numbers}) AND ({bounds})"


def misfits(target: StructType, rows: StructType) -> list[str]:
    """Why rows cannot be written to a table, each with what would help; empty if they can."""
    there = {field.name.lower(): field for field in target}
    found = []
    for field in rows:
        column = there.pop(field.name.lower(), None)
        wanted = column_ddl(field)
        if column is None:
            found.append(f"it lacks {wanted} (ALTER TABLE … ADD COLUMNS ({wanted}))")
        elif column.dataType.simpleString() != field.dataType.simpleString():
            found.append(f"{quoted(column.name)} is {type_ddl(column.dataType)}, the records give {wanted}")
    found += [
        f"{quoted(left.name)} must not be null, and the records have none"
        for left in there.values()
        if not left.nullable
    ]
    return found


def column_ddl(field: StructField) -> str:
    """Never NOT NULL: who writes to the table later may have rows without it."""
    return f"{quoted(field.name)} {type_ddl(field.dataType)}"


def type_ddl(kind: DataType) -> str:
    """As SQL reads it, whatever the names of its fields: `simpleString` does not quote them."""
    # Not StructType.toDDL, which needs a running Spark and keeps NOT NULL.
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quoted(each.name)}: {type_ddl(each.dataType)}' for each in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_ddl(kind.keyType)}, {type_ddl(kind.valueType)}>"
    return kind.simpleString().upper()


def new_topic_ids(properties: Mapping[str, str], ids: Mapping[str, str], place: str) -> dict[str, str]:
    """Properties to add for topics that the table has not seen; InvalidConfig for another incarnation of one it has."""
    added = {}
    for topic, topic_id in ids.items():
        name = f"{TOPIC_ID_PROPERTY}{topic}"
        known = properties.get(name)
        if known is None:
            added[name] = topic_id
        elif known != topic_id:
            raise InvalidConfig(
                f"topic {topic!r} was deleted and made again: its offsets begin at 0, and {place} holds rows of the "
                f"old one ({name} = {known}, now {topic_id}). Write to another table, or delete the old topic's rows "
                "and set that table property to the new id.",
                topic=topic,
            )
    return added


def pause_s(attempt: int, jitter: float) -> float:
    """After failed try number `attempt` (from 0). Long jitter, because those who met once would meet again."""
    return min(CONFLICT_LONGEST_S, CONFLICT_FIRST_S * 2.0 ** min(attempt, 30)) * (0.5 + jitter)


# --- the table -------------------------------------------------------------------------------------


class DeltaTarget:
    def __init__(self, place: str, wait: Callable[[float], object] | None = None) -> None:
        self.place = place
        self._wait = wait or threading.Event().wait
        self._known_ids: set[tuple[str, str]] = set()

    @property
    def _table(self) -> str:
        return f"delta.{quoted(self.place)}"

    def prepare(self, spark: SparkSession, rows: StructType) -> None:
        """Create the table, or check that the rows fit into the one that is there."""
        schema = self._schema(spark)
        if schema is None:
            self._create(spark, rows)
            schema = self._schema(spark) or rows
        if found := misfits(schema, rows):
            raise InvalidConfig(f"the table {self.place} does not fit: {'; '.join(found)}", name="to")

    def _schema(self, spark: SparkSession) -> StructType | None:
        from pyspark.errors import PySparkException

        try:
            return spark.read.format("delta").load(self.place).schema
        except PySparkException as error:
            if (error.getCondition() or "").startswith(_NO_TABLE):
                return None
            raise

    def _create(self, spark: SparkSession, rows: StructType) -> None:
        columns = ", ".join(column_ddl(field) for field in rows)
        statement = f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) USING delta"
        # Members of a group start together: the folder may be another's, which has not committed the table yet.
        self._repeat(
            lambda: spark.sql(f"{statement} PARTITIONED BY ({TOPIC}, {PARTITION})"), is_creation_race, CREATE_ATTEMPTS
        )

    def append(self, frame: DataFrame, query_id: str, batch_id: int) -> None:
        writer = frame.write.format("delta").mode("append")
        # Only these two together make a repeat of the batch write nothing.
        writer = writer.option("txnAppId", f"sluice-{query_id}").option("txnVersion", batch_id)
        self._repeat(lambda: writer.save(self.place))

    def merge(
        self, frame: DataFrame, ranges: Mapping[TopicPartition, OffsetRange], topic_ids: Mapping[str, str]
    ) -> None:
        """Insert what is not there. `ranges` are the offsets of the batch: rows outside of them are not looked for."""
        spark = frame.sparkSession
        ranges = {tp: found for tp, found in ranges.items() if found.count > 0}
        if not ranges:
            return
        self._remember(spark, {tp.topic: topic_ids[tp.topic] for tp in ranges})
        frame.createOrReplaceTempView("__sluice_batch")
        columns = ", ".join(quoted(name) for name in frame.columns)
        values = ", ".join(f"s.{quoted(name)}" for name in frame.columns)
        statement = (
            f"MERGE INTO {self._table} AS t USING __sluice_batch AS s ON {merge_condition(ranges)} "  # noqa: S608 - quoted
            f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
        )
        # An insert-only merge reads its source once: a copy of it would only cost memory.
        spark.conf.set("spark.databricks.delta.merge.materializeSource", "none")
        try:
            self._repeat(lambda: spark.sql(statement))
        finally:
            spark.catalog.dropTempView("__sluice_batch")

    def _remember(self, spark: SparkSession, topic_ids: Mapping[str, str]) -> None:
        if self._known_ids.issuperset(topic_ids.items()):
            return

        def record() -> None:
            (detail,) = spark.sql(f"DESCRIBE DETAIL {self._table}").collect()
            if added := new_topic_ids(detail["properties"], topic_ids, self.place):
                pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in sorted(added.items()))
                spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({pairs})")

        self._repeat(record)
        self._known_ids.update(topic_ids.items())

    def _repeat(
        self,
        attempt: Callable[[], Any],
        passes: Callable[[BaseException], bool] | None = None,
        attempts: int = CONFLICT_ATTEMPTS,
    ) -> None:
        """Until no other commit gets in between. Delta has checked the whole statement against what came first."""
        passes = passes or is_conflict
        for number in range(attempts):
            try:
                attempt()
                return
            except Exception as error:
                if not passes(error) or number == attempts - 1:
                    raise
                logger.info("another job wrote to %s at the same time, trying again", self.place)
                self._wait(pause_s(number, random.random()))


def is_conflict(error: BaseException) -> bool:
    condition = getattr(error, "getCondition", lambda: None)() or ""
    return condition.startswith(_CONFLICTS) or any(name in str(error) for name in (*_CONFLICT_CLASSES, *_CONFLICTS))


def is_creation_race(error: BaseException) -> bool:
    return is_conflict(error) or _BEING_CREATED in str(error)
