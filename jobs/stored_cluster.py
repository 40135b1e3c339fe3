"""A cluster as its storage shows it: topics, partitions, states. Nobody needs to lead it for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sluice.conf.settings import Settings
from sluice.log_store import snapshot
from sluice.log_store.catalog import METADATA_CONFIG, METADATA_REF
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.claims import newest_claim
from sluice.log_store.clock import Clock, WallGuard
from sluice.log_store.errors import InvalidRequest, PlanRefused, ResourceNotFound, StorageError
from sluice.log_store.inspection import stored_catalog
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import Plan
from sluice.log_store.store import Store, open_store
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import PartitionRef

METADATA_TOPIC = TopicMeta(
    name=METADATA_REF.topic,
    topic_id=METADATA_REF.topic_id,
    folder=METADATA_REF.folder.rpartition("/")[0],
    partition_history=(1,),
    configs=dict(METADATA_CONFIG.overrides),
    created_ms=0,
    internal=True,
)
"""The catalog is a topic of its own kind: it does not list itself, and is maintained all the same."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """How to open the root on another machine: small, and can be sent to executors."""

    url: str
    fsync: bool
    options: tuple[tuple[str, str], ...]

    def open(self) -> Store:
        return open_store(self.url, fsync=self.fsync, storage_options=dict(self.options))


@dataclass(frozen=True, slots=True)
class Target:
    """One partition that a job may work on, with the configuration that holds for it now."""

    ref: PartitionRef
    config: TopicConfig
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    removed: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    next_due_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    groups: int = 0
    """Groups that were forgotten altogether."""
    offsets: int = 0


class StoredCluster:
    """A cluster that nobody needs to lead for it to be read."""

    mode = "read-only"

    def __init__(self, settings: Settings, store: Store, clock: Clock, cluster_id: str) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.cluster_id = cluster_id
        self.wall = WallGuard(clock)

    def __enter__(self) -> StoredCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pass

    @property
    def store_spec(self) -> StoreSpec:
        storage = self.settings.storage
        return StoreSpec(storage.root, storage.fsync, tuple(storage.options.items()))

    def spark_path(self, path: str) -> str:
        """What Spark calls a path below the root."""
        from sluice.streaming.spark.views import location  # PySpark, which most jobs do not need

        return location(str(self.store.local_path or self.store.url), path)

    @property
    def leader(self) -> str:
        """Who commits for this job, in words."""
        return "nobody: storage is only read"

    @property
    def epoch(self) -> int:
        """For the names of new files (I-4)."""
        claim = newest_claim(self.store)
        return 0 if claim is None else claim.epoch

    def wall_trusted(self) -> bool:
        """May records be deleted by the time of day (R-13)?"""
        return self.wall.trusted()

    # --- topics and partitions -----------------------------------------------------------------

    def topics(self) -> list[TopicMeta]:
        """Live topics by name, the internal ones too, and the catalog itself."""
        problems: list[str] = []
        catalog = stored_catalog(self.store, problems)
        if problems:
            raise StorageError("; ".join(problems))
        return sorted([METADATA_TOPIC, *catalog.topics()], key=lambda meta: meta.name)

    def targets(self, patterns: Sequence[str] = (), partitions: Sequence[int] = ()) -> list[Target]:
        """The partitions of the topics that match one of the patterns (`orders`, `log-*`); of all without any."""
        found: list[Target] = []
        unused = set(patterns)
        for meta in self.topics():
            matched = {pattern for pattern in patterns if fnmatchcase(meta.name, pattern)}
            unused -= matched
            if patterns and not matched:
                continue
            config = meta.config()
            numbers = [p for p in range(meta.partitions) if not partitions or p in partitions]
            found += [Target(meta.partition(number), config, meta.internal) for number in numbers]
        if unused:
            raise ResourceNotFound(f"no topic matches {', '.join(sorted(unused))}", field="topic")
        if missing := set(partitions) - {target.ref.partition for target in found}:
            raise ResourceNotFound(f"no topic has partition {min(missing)}", field="partition")
        return found

    def load(self, ref: PartitionRef) -> PartitionState:
        """The newest committed state. One that is damaged or was tampered with is not for jobs to work on."""
        loaded = snapshot.load(self.store, ref.folder)
        if loaded.problem is not None:
            raise loaded.problem
        identity = loaded.state.identity
        if identity is not None and identity.topic_id != ref.topic_id:
            raise PlanRefused(f"{ref.folder} belongs to another incarnation of {ref.topic}")
        return loaded.state

    # --- what only a leader can do -------------------------------------------------------------

    def apply_plan(self, ref: PartitionRef, plan: Plan) -> int:
        """The version that holds the plan; PlanRefused with what changed. A repeat of a plan id is harmless (R-7)."""
        raise self._looks_only()

    def sweep(self, ref: PartitionRef, *, orphans: bool) -> Swept:
        """Delete files that were removed long enough ago (I-9), with `orphans` also those that no commit names."""
        raise self._looks_only()

    def expire_offsets(self) -> Expired:
        """Run the rule of the group coordinator now."""
        raise self._looks_only()

    @staticmethod
    def _looks_only() -> InvalidRequest:
        return InvalidRequest("this cluster was opened for reading only")
