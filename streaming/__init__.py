"""The read side: positions, planner, fetch, groups, Spark source and sink.

For Spark programs: `topic_view` and `decode` make the first query on a topic one line each; `register` makes
`format("sluice")` known where PySpark cannot find it; `ConsumedRecord` and `Rejected` are for functions given to the
consumer job. They are loaded when they are used: importing this package does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice.streaming.spark.decode import decode
    from sluice.streaming.spark.job_records import ConsumedRecord, Rejected
    from sluice.streaming.spark.register import register
    from sluice.streaming.spark.views import topic_view

__all__ = ["ConsumedRecord", "Rejected", "decode", "register", "topic_view"]

_HOMES = {
    "ConsumedRecord": "sluice.streaming.spark.job_records",
    "Rejected": "sluice.streaming.spark.job_records",
    "decode": "sluice.streaming.spark.decode",
    "register": "sluice.streaming.spark.register",
    "topic_view": "sluice.streaming.spark.views",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
