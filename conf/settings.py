"""Every setting of Sluice, in small groups: a component receives its group and nothing else.

Groups can be made directly with their defaults (`LogSettings()`); bounds are checked by `load_settings`,
which only the composition roots call. After a change run `python -m sluice.conf > conf/defaults.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sluice.conf.loading import AtLeast, load
from sluice.conf.settings_jobs import JobSettings, SparkSettings
from sluice.conf.settings_log import ClusterSettings, LogSettings, StorageSettings, TopicSettings, WalSettings
from sluice.conf.settings_service import GroupSettings, LoggingSettings, ServerSettings, TlsSettings

__all__ = [
    "GROUPS",
    "ClusterSettings",
    "GroupSettings",
    "JobSettings",
    "LogSettings",
    "LoggingSettings",
    "ServerSettings",
    "Settings",
    "SparkSettings",
    "StorageSettings",
    "TlsSettings",
    "TopicSettings",
    "WalSettings",
    "load_settings",
    "load_settings_with_origins",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    storage: StorageSettings = field(default_factory=StorageSettings)
    wal: WalSettings = field(default_factory=WalSettings)
    log: LogSettings = field(default_factory=LogSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    group: GroupSettings = field(default_factory=GroupSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    jobs: JobSettings = field(default_factory=JobSettings)


GROUPS: Mapping[str, type[object]] = {
    "storage": StorageSettings,
    "wal": WalSettings,
    "log": LogSettings,
    "cluster": ClusterSettings,
    "topics": TopicSettings,
    "group": GroupSettings,
    "server": ServerSettings,
    "logging": LoggingSettings,
    "tls": TlsSettings,
    "spark": SparkSettings,
    "jobs": JobSettings,
}

_RELATIONS = (
    AtLeast(key="claim.timeout.ms", factor=3, other="claim.renew.ms"),
    # As long as a removed file may still be read, the commit that removed it is kept.
    AtLeast(key="log.json.retention.ms", factor=1, other="file.delete.delay.ms"),
    AtLeast(key="wal.max.bytes", factor=1, other="wal.file.bytes"),
    AtLeast(key="group.max.session.timeout.ms", factor=1, other="group.min.session.timeout.ms"),
)


def load_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    """Defaults, then the TOML file, then SLUICE_… variables. ConfigurationError for anything wrong or unknown."""
    settings, _ = load_settings_with_origins(path, env)
    return settings


def load_settings_with_origins(path: Path | None, env: Mapping[str, str]) -> tuple[Settings, Mapping[str, str]]:
    """The same, with the place where each key's value came from."""
    loaded = load(GROUPS, _RELATIONS, path, env)
    return Settings(**loaded.groups), loaded.origins
