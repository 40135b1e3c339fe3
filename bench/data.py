"""What the benchmarks append: JSON orders of exactly 100 bytes, so that compression has something real to do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sluice.log_store.records import HEADERS, RECORD_SCHEMA, TIMESTAMP

VALUE_BYTES = 100
_FIRST_MS = 1_750_000_000_000


def batch(records: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    order, cents = (rng.integers(limit // 10, limit, records) for limit in (10**9, 10**6))
    customer = rng.integers(0, 1_000, records)
    values = [
        b'{"order":%d,"customer":"c%03d","cents":%d,"status":"shipped","note":"' % row
        for row in zip(order.tolist(), customer.tolist(), cents.tolist(), strict=True)
    ]
    padded = [value.ljust(VALUE_BYTES - 2, b"x") + b'"}' for value in values]
    assert {len(value) for value in padded} == {VALUE_BYTES}
    stamps = (_FIRST_MS + rng.integers(0, 3, records).cumsum()) * 1000
    return pa.record_batch(
        [
            pa.array(stamps).cast(TIMESTAMP),
            pa.nulls(records, pa.binary()),
            pa.array(padded, pa.binary()),
            pa.nulls(records, HEADERS),
        ],
        schema=RECORD_SCHEMA,
    )


def batches(count: int, records: int) -> list[pa.RecordBatch]:
    return [batch(records, seed) for seed in range(count)]
