"""Typed settings with doc, default and bounds, and the Spark session factory (in `sluice.conf.spark`)."""

from sluice.conf.errors import ConfigurationError, MissingJarsError
from sluice.conf.settings import (
    ClusterSettings,
    LogSettings,
    Settings,
    SparkSettings,
    StorageSettings,
    TopicSettings,
    WalSettings,
    load_settings,
)

__all__ = [
    "ClusterSettings",
    "ConfigurationError",
    "LogSettings",
    "MissingJarsError",
    "Settings",
    "SparkSettings",
    "StorageSettings",
    "TopicSettings",
    "WalSettings",
    "load_settings",
]
