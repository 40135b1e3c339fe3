"""JSON values as columns: the records of a topic become a table with the fields that a schema names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.log_store.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

PERMISSIVE, DROP_MALFORMED, FAIL_FAST = "PERMISSIVE", "DROPMALFORMED", "FAILFAST"
MODES = (PERMISSIVE, DROP_MALFORMED, FAIL_FAST)
MALFORMED = "_corrupt_record"
"""Holds the text of a value that is no JSON object or does not fit the schema, as in Spark's JSON reader."""


def decode(frame: DataFrame, schema: str | StructType, *, mode: str = PERMISSIVE, into: str | None = None) -> DataFrame:
    """The frame with its column `value` replaced by the fields of `schema` (DDL such as `id LONG, item STRING`).

    All other columns stay in front of them. `into` puts the fields into one struct column of that name instead: for
    schemas with a field called as another column, which is refused otherwise. A null value (a tombstone) gives nulls.

    What to do with a value that is no JSON object or does not fit is said by `mode`, with the names that Spark uses:
    PERMISSIVE keeps the row and puts the text into `_corrupt_record`, DROPMALFORMED leaves the row out, FAILFAST fails
    the query.
    """
    from pyspark.sql import functions

    fields = parsed_schema(schema)
    mode = _checked_mode(mode)
    kept = [name for name in frame.columns if name != "value"]
    _check_names(frame.columns, kept, fields, mode, into)
    text, parsed, malformed = (functions.col(name) for name in ("__decode_text", "__decode_parsed", "__decode_bad"))
    staged = frame.withColumn("__decode_text", functions.col("value").cast("string"))
    staged = staged.withColumn("__decode_parsed", _parse(text, fields))
    staged = staged.withColumn("__decode_bad", malformed_text(text, parsed))
    if mode == DROP_MALFORMED:
        staged = staged.where(malformed.isNull())
    elif mode == FAIL_FAST:
        complaint = functions.concat(functions.lit("this value does not fit the schema: "), malformed)
        staged = staged.withColumn(
            "__decode_parsed", functions.when(malformed.isNotNull(), functions.raise_error(complaint)).otherwise(parsed)
        )
    values = [parsed[field.name].alias(field.name) for field in fields]
    if into is not None:
        values = [functions.when(parsed.isNotNull(), functions.struct(*values)).alias(into)]
    if mode == PERMISSIVE:
        values.append(malformed.alias(MALFORMED))
    return staged.select(*(functions.col(f"`{name}`") for name in kept), *values)


def parsed_schema(schema: str | StructType) -> StructType:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    try:
        found = StructType.fromDDL(schema)
    except ParseException as error:
        why = " ".join(str(error).split())[:300]
        raise InvalidRequest(f"schema: {schema!r} is no list of fields such as 'id LONG, item STRING': {why}") from None
    if not isinstance(found, StructType):
        raise InvalidRequest(f"schema: {schema!r} is one type, not a list of fields such as 'id LONG, item STRING'")
    return found


def _checked_mode(mode: str) -> str:
    if mode.upper() not in MODES:
        raise InvalidRequest(f"mode: must be one of {', '.join(MODES)}, not {mode!r}", field="mode")
    return mode.upper()


def _check_names(columns: list[str], kept: list[str], fields: StructType, mode: str, into: str | None) -> None:
    if "value" not in columns:
        raise InvalidRequest("the frame has no column 'value' to decode", field="frame")
    new = [into] if into is not None else [field.name for field in fields]
    if mode == PERMISSIVE:
        new.append(MALFORMED)
    taken = {name.lower() for name in kept}
    if clashes := [name for name in new if name.lower() in taken]:
        raise InvalidRequest(
            f"schema: {', '.join(clashes)} is also a column of the frame; decode into='data', or rename it first",
            field="schema",
        )


def _parse(text: Column, fields: StructType) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructField, StructType

    marked = StructType([*fields.fields, StructField(MALFORMED, StringType())])
    return functions.from_json(text, marked, {"mode": PERMISSIVE, "columnNameOfCorruptRecord": MALFORMED})


def malformed_text(text: Column, parsed: Column) -> Column:
    """The text if it did not fit, else null. Spark's parser calls white space null rather than malformed."""
    from pyspark.sql import functions

    return functions.coalesce(parsed[MALFORMED], functions.when(parsed.isNull(), text))
