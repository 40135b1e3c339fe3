"""Rejected records go to a topic of their own: key, value and headers as they were, the reason in further headers.

Written with the sink, under the id of the query and the number of the batch: a batch that is repeated after a crash
adds no letter twice. Only where another member of a group repeats it, under another query, may a letter come twice; its
origin in the headers tells.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions

from sluice.streaming.spark.delta_target import OFFSET, PARTITION, TOPIC
from sluice.streaming.spark.job_options import JobOptions
from sluice.streaming.spark.job_records import ERROR
from sluice.streaming.spark.job_rows import ENVELOPE
from sluice.streaming.spark.views import COLUMNS

PREFIX = "__sluice.errors."
QUERY_SUFFIX = "-dead-letters"
REASON_CHARACTERS = 2_000
"""A reason must not make a record too large for its topic."""


class DeadLetters:
    def __init__(self, options: JobOptions) -> None:
        given = {
            "server": options.server,
            "token": options.token,
            "ca.file": options.ca_file,
            "topic": options.dead_letter,
        }
        self._options = {name: value for name, value in given.items() if value}

    def send(self, rejected: DataFrame, query_id: str, number: int) -> int:
        """`rejected` as `job_rows.rejected_records` gives it; how many there are."""
        count = rejected.count()
        if count:
            ids = {"query.id": f"{query_id}{QUERY_SUFFIX}", "batch.id": str(number)}
            letters(rejected).write.format("sluice").options(**self._options, **ids).mode("append").save()
        return count


def letters(rejected: DataFrame) -> DataFrame:
    """The columns of the sink."""
    facts = {
        "topic": functions.col(TOPIC),
        "partition": functions.col(PARTITION),
        "offset": functions.col(OFFSET),
        "timestamp": functions.unix_millis(functions.col(ENVELOPE["timestamp"])),
        "message": functions.substring(functions.col(ERROR), 1, REASON_CHARACTERS),
    }
    added = functions.array(*(_header(name, value) for name, value in facts.items()))
    kind = COLUMNS["headers"]
    given = functions.col(ENVELOPE["headers"]) if ENVELOPE["headers"] in rejected.columns else functions.lit(None)
    none = functions.array().cast(kind)
    headers = functions.concat(functions.coalesce(given.cast(kind), none), added.cast(kind))
    return rejected.select(functions.col(ENVELOPE["key"]).alias("key"), "value", headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    text = value.cast("string").cast("binary")
    return functions.struct(functions.lit(f"{PREFIX}{name}").alias("key"), text.alias("value"))
