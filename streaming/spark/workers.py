"""What makes a Python worker that Spark uses again cheap.

PySpark collects garbage after every task of such a worker, before it takes the next one. The modules that a worker has
loaded are some 85,000 objects, which are visited each time: tens of milliseconds, more than a small task takes.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def begin_task() -> None:
    """Called by every task of ours. Elsewhere, as in the planner or in the driver, it changes nothing."""
    if TaskContext.get() is not None:
        _set_modules_aside()


@cache
def _set_modules_aside() -> None:
    """What is there now lives as long as the process: the collector need not look at it again."""
    gc.freeze()
