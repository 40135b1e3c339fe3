"""The user's function on single records: what it may answer, and what counts as a rejection."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sluice.log_store.errors import InvalidConfig
from sluice.streaming import ConsumedRecord, Rejected
from sluice.streaming.spark.job_records import ERROR, applied, load_function
from sluice.streaming.spark.schema import COLUMNS, HEADERS_COLUMN, arrow_schema

SCHEMA = arrow_schema((*COLUMNS, HEADERS_COLUMN))
ROWS = [
    {
        "key": b"k",
        "value": b'{"n":%d}' % n,
        "topic": "t",
        "partition": 1,
        "offset": n,
        "timestamp": datetime(2026, 1, 31, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}],
    }
    for n in range(6)
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)


def answers(record: ConsumedRecord) -> object:
    match record.json()["n"]:
        case 0:
            return record
        case 1:
            return {"twice": 2}
        case 2:
            return None
        case 3:
            raise Rejected("three")
        case 4:
            return replace(record, key=None, value=b"new", headers=(("z", None),), offset=99)
        case _:
            return record.json()["missing"]


def test_a_record_is_kept_changed_left_out_or_rejected():
    found = applied(answers, BATCH, tolerant=True)
    assert found.schema == SCHEMA.append(pa.field(ERROR, pa.string()))
    rows = {row["offset"]: row for row in found.to_pylist()}
    assert sorted(rows) == [0, 1, 3, 4, 5]
    assert rows[0] == ROWS[0] | {ERROR: None}
    assert rows[1]["value"] == b'{"twice":2}'
    # What is rejected goes on as it was.
    assert rows[3] == ROWS[3] | {ERROR: "three"}
    assert rows[5] == ROWS[5] | {ERROR: "KeyError: 'missing'"}
    # Everything but the origin can be changed.
    assert (rows[4]["key"], rows[4]["value"], rows[4]["headers"]) == (None, b"new", [{"key": "z", "value": None}])


def test_without_a_dead_letter_topic_a_rejection_fails_and_says_where():
    with pytest.raises(InvalidConfig, match=r"t-1 at offset 3 was rejected and there is no --dead-letter: three"):
        applied(answers, BATCH, tolerant=False)


def test_a_fault_of_something_else_is_no_rejection():
    def unlucky(record: ConsumedRecord) -> object:
        raise ConnectionError("the database is away")

    with pytest.raises(ConnectionError):
        applied(unlucky, BATCH, tolerant=True)


def test_text_is_stored_as_utf8_and_no_json_is_a_rejection():
    one = BATCH.slice(0, 1)
    assert applied(lambda record: "ü", one, tolerant=True).column("value").to_pylist() == ["ü".encode()]
    broken = pa.RecordBatch.from_pylist([ROWS[0] | {"value": b"{"}], schema=SCHEMA)
    (reason,) = applied(answers, broken, tolerant=True).column(ERROR).to_pylist()
    assert reason.startswith("the value is not valid JSON")


def test_all_left_out_is_an_empty_batch():
    found = applied(lambda record: None, BATCH, tolerant=True)
    assert (found.num_rows, found.schema.names) == (0, [*SCHEMA.names, ERROR])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("json:no_such", "json has no 'no_such'"),
        ("math:pi", "is not a function"),
    ],
)
def test_a_function_that_cannot_be_found_is_told(name: str, words: str):
    with pytest.raises(InvalidConfig, match=words):
        load_function(name, "--each")
