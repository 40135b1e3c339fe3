"""From the records of a batch to the rows of a target.

Every row begins with the envelope of its record, in columns that begin with `__`. Then comes the content: `value` as it
is, or the fields of `--json-schema`.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StringType, StructField, StructType

from sluice.log_store.errors import InvalidConfig
from sluice.streaming.spark.decode import MALFORMED, decode, parsed_schema
from sluice.streaming.spark.delta_target import OFFSET, PARTITION, TOPIC
from sluice.streaming.spark.job_options import JobOptions, Kind
from sluice.streaming.spark.job_records import ERROR, apply_to_batches

ENVELOPE = {
    "topic": TOPIC,
    "partition": PARTITION,
    "offset": OFFSET,
    "timestamp": "__timestamp",
    "key": "__key",
    "headers": "__headers",
}
"""Columns of the source and what they are called in a target. `timestampType` says nothing about a record."""


def judged(records: DataFrame, options: JobOptions) -> DataFrame:
    """The records with what `--each` made of them and, in `__error`, why one was rejected."""
    if options.each is None:
        return records.withColumn(ERROR, functions.lit(None).cast("string"))
    schema = StructType([*records.schema.fields, StructField(ERROR, StringType())])
    run = partial(apply_to_batches, options.each, options.dead_letter is not None)
    return records.mapInArrow(run, schema)


def decoded(records: DataFrame, options: JobOptions) -> DataFrame:
    """The rows of the target, still with `__error` and with `value`, which a dead letter needs."""
    rows = records.withColumnsRenamed({name: new for name, new in ENVELOPE.items() if name in records.columns})
    rows = rows.drop("timestampType")
    if options.json_schema is None:
        return rows
    content = rows.withColumn("__value", functions.col("value"))
    found = decode(content, options.json_schema)
    if options.dead_letter is None:
        return found
    malformed = functions.when(
        functions.col(MALFORMED).isNotNull(), functions.lit("the value does not fit --json-schema")
    )
    return found.withColumn(ERROR, functions.coalesce(functions.col(ERROR), malformed)).drop(MALFORMED)


def rows_for_target(found: DataFrame) -> DataFrame:
    """What is written: the rows that nobody rejected, without what only dead letters need."""
    accepted = found.where(functions.col(ERROR).isNull())
    content = [name for name in found.columns if name not in (*ENVELOPE.values(), ERROR, "__value")]
    names = [*(name for name in ENVELOPE.values() if name in found.columns), *content]
    return accepted.select(*(functions.col(f"`{name}`") for name in names))


def rejected_records(found: DataFrame) -> DataFrame:
    """Envelope, `value` and `__error` of the rest."""
    bad = found.where(functions.col(ERROR).isNotNull())
    value = "__value" if "__value" in found.columns else "value"
    names = [name for name in ENVELOPE.values() if name in found.columns]
    return bad.select(*names, functions.col(value).alias("value"), ERROR)


def target_schema(source: StructType, options: JobOptions) -> StructType:
    """Of the rows that a target gets, without running anything."""
    fields = [StructField(new, source[name].dataType) for name, new in ENVELOPE.items() if name in source.names]
    if options.json_schema is None:
        return StructType([*fields, StructField("value", source["value"].dataType)])
    content = list(parsed_schema(options.json_schema).fields)
    if options.dead_letter is None:
        content.append(StructField(MALFORMED, StringType()))
    names = [field.name.lower() for field in (*fields, *content)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidConfig(f"--json-schema: {', '.join(twice)} would be there twice; rename it with --each")
    return StructType([*fields, *content])


def readable(rows: DataFrame) -> DataFrame:
    """For the console: text where there are bytes."""

    def shown(field: StructField) -> Column:
        column = functions.col(f"`{field.name}`")
        return column.cast("string").alias(field.name) if field.dataType.typeName() == "binary" else column

    return rows.select(*(shown(field) for field in rows.schema if field.name != ENVELOPE["headers"]))


def passes_through(options: JobOptions) -> bool:
    """Does the target get the records as the source gives them? A function that asked for nothing else does."""
    return options.target.kind is Kind.FUNCTION and options.json_schema is None
