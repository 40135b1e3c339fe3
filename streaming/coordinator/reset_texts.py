"""What a reset is told as text: dates, durations, and files of offsets."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition

_DATETIME = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,3}))?(Z|[+-]\d{2}:?\d{2})?", flags=re.ASCII)
_DURATION = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?", flags=re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_ROWS = 1_000_000


def datetime_ms(text: object) -> int:
    """`YYYY-MM-DDTHH:mm:SS.sss` with or without a zone; without one it is UTC."""
    match = _DATETIME.fullmatch(text) if isinstance(text, str) else None
    rule = "must be a date like 2024-05-01T12:00:00.000, with Z or a zone like +02:00 behind it, or without: UTC"
    if match is None:
        raise InvalidRequest(f"to_datetime: {rule}", field="to_datetime")
    seconds, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(seconds + ("+00:00" if zone in (None, "Z") else zone))
        moment += timedelta(milliseconds=int((fraction or "0").ljust(3, "0")))
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"to_datetime: there is no such time ({error}); it {rule}", field="to_datetime") from None


def duration_ms(text: object) -> int:
    """ISO 8601 as far as Kafka takes it: days, hours, minutes, seconds. `P1DT12H`, `PT30M`, `PT0.5S`."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None or not any(match.groups()) or str(text).endswith("T"):
        raise InvalidRequest("by_duration: must be a duration like P7D, PT1H30M or PT45S", field="by_duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    fraction = int((match.group(5) or "0").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction


def file_offsets(content: object, group_id: str) -> Mapping[TopicPartition, int]:
    """Rows for one group out of CSV text (`topic,partition,offset`, with a group in front if it is for several), or
    out of a list of such rows or of objects."""
    if isinstance(content, str):
        rows: list[object] = [row for row in csv.reader(content.splitlines(), strict=False) if row]
    elif isinstance(content, list):
        rows = content
    else:
        raise _wrong("must be CSV text or a list of rows")
    if len(rows) > MAX_ROWS:
        raise _wrong(f"has {len(rows)} rows; at most {MAX_ROWS} are allowed")
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, 1):
        group, where, offset = _row(row, number)
        if group is not None and group != group_id:
            continue
        if where in found:
            raise _wrong(f"row {number} names {where} a second time")
        found[where] = offset
    return found


def _row(row: object, number: int) -> tuple[str | None, TopicPartition, int]:
    if isinstance(row, dict):
        known = {"group", "topic_name", "partition_id", "offset", "current_offset", "new_offset"}
        if not {"topic_name", "partition_id"} <= row.keys() <= known or not {"offset", "new_offset"} & row.keys():
            raise _wrong(f"row {number} must have topic_name, partition_id and offset")
        offset = row["offset"] if "offset" in row else row["new_offset"]
        fields: list[object] = [row["topic_name"], row["partition_id"], offset]
        group = row.get("group")
    elif isinstance(row, list) and len(row) in (3, 4):
        group, fields = (row[0], row[1:]) if len(row) == 4 else (None, row)
    else:
        raise _wrong(f"row {number} must be topic,partition,offset or group,topic,partition,offset")
    topic = fields[0]
    if not isinstance(topic, str) or not (group is None or isinstance(group, str)):
        raise _wrong(f"row {number} has a name that is no text")
    return group, TopicPartition(topic, _number(fields[1], number)), _number(fields[2], number)


def _number(value: object, row: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,19}\s*", value, flags=re.ASCII):
        value = int(value)
    if type(value) is not int or abs(value) >= 2**63:
        raise _wrong(f"row {row} has a partition or an offset that is no whole number")
    return value


def _wrong(rule: str) -> InvalidRequest:
    return InvalidRequest(f"from_file: {rule}", field="from_file")
