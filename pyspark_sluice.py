"""PySpark imports every module called `pyspark_…` and registers its `DefaultSource`: `format("sluice")` just works."""

from __future__ import annotations

from sluice.streaming.source import SluiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
