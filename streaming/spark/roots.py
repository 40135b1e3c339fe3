"""A cluster's topics and partitions, found in its storage: the catalog is replayed, read-only.

Works while the service is down, or on a copy of the bucket. Only with `server` and no `path` is the service asked,
once, where its storage is.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sluice.log_store import reader
from sluice.log_store.catalog_state import CatalogState, TopicMeta
from sluice.log_store.catalog_states import METADATA_REF, MetadataStates
from sluice.log_store.clock import Clock
from sluice.log_store.cluster_file import CLUSTER_FILE
from sluice.log_store.errors import InvalidRequest, UnknownTopicOrPartition
from sluice.log_store.store import Store, StoreNotFound, open_store
from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.streaming.spark.address import Address
from sluice.streaming.spark.option_values import wrong
from sluice.streaming.spark.partition_view import FollowedPartition, PartitionView
from sluice.streaming.spark.retrying import Retry
from sluice.streaming.spark.subscriptions import Assigned, Subscription, TopicPattern, Topics

LOOKS_AT_ONCE = 16
"""On an object store, where each look is a round trip."""
ASK_WITHIN_S = 10.0


class Lake:
    """The storage of one cluster. Opened at first use: constructing it touches nothing."""

    def __init__(self, address: Address, clock: Clock, retry: Retry) -> None:
        self._address = address
        self._clock = clock
        self._retry = retry
        self._store: Store | None = None
        self._metadata: FollowedPartition | None = None
        self._states = MetadataStates()
        self._replayed_to = 0
        self._followed: dict[PartitionRef, FollowedPartition] = {}

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = self._retry.run("opening the storage", self._open)
        return self._store

    def _open(self) -> Store:
        root = self._address.path or root_of_service(self._address)
        store = open_to_read(root, self._address.storage_options(root))
        try:
            store.get(CLUSTER_FILE)
        except StoreNotFound:
            raise wrong("path" if self._address.path else "server", f"{root} holds no Sluice cluster") from None
        return store

    # --- topics --------------------------------------------------------------------------------

    def catalog(self) -> CatalogState:
        """As of now."""
        self._retry.run("reading the catalog", self._replay)
        return self._states.catalog

    def _replay(self) -> None:
        if self._metadata is None:
            self._metadata = FollowedPartition(self.store, METADATA_REF, self._clock)
        self._metadata.search(self._apply)

    def _apply(self, view: PartitionView) -> None:
        if view.problem is not None:
            raise view.problem
        start = max(self._replayed_to, view.log_start)
        wanted = OffsetRange(start, view.end)
        for batch in reader.scan(self.store, view.ref.folder, view.files(wanted), start, view.end):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                self._states.apply(key, value)
            if batch.num_rows:
                self._replayed_to = int(batch.column("offset")[-1].as_py()) + 1

    def subscribed(self, subscription: Subscription, *, all_there: bool = False) -> list[PartitionRef]:
        """The partitions there are now. `all_there`: UnknownTopicOrPartition if something named is missing."""
        catalog = self.catalog()
        if isinstance(subscription, TopicPattern):
            metas = [meta for meta in catalog.topics(internal=False) if subscription.pattern.fullmatch(meta.name)]
            return [meta.partition(number) for meta in metas for number in range(meta.partitions)]
        named = subscription.names if isinstance(subscription, Topics) else tuple(subscription.partitions)
        found = {name: meta for name in named if (meta := catalog.find(name)) is not None}
        if all_there and (missing := [name for name in named if name not in found]):
            raise UnknownTopicOrPartition(f"there is no topic {', '.join(map(repr, missing))} in {self.store.url}")
        return [ref for meta in found.values() for ref in _chosen(meta, subscription, all_there=all_there)]

    def live(self, topic: str, topic_id: str) -> TopicMeta | None:
        """The topic, if it is still this incarnation. From the catalog as it was last read."""
        meta = self._states.catalog.find(topic)
        return meta if meta is not None and meta.topic_id == topic_id else None

    # --- partitions ----------------------------------------------------------------------------

    def views(self, refs: Iterable[PartitionRef]) -> dict[PartitionRef, PartitionView]:
        """Each partition at its newest version."""
        followed = [self._follow(ref) for ref in refs]
        if not self.store.durable_puts or len(followed) < 2:
            return {partition.ref: self._look(partition) for partition in followed}
        with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(followed)), thread_name_prefix="sluice-look") as pool:
            return {view.ref: view for view in pool.map(self._look, followed)}

    def _look(self, partition: FollowedPartition) -> PartitionView:
        return self._retry.run(f"reading the log of {partition.ref.tp}", partition.look)

    def offset_at(self, ref: PartitionRef, ms: int) -> int | None:
        """The lowest offset whose record is at `ms` or later."""

        def find(view: PartitionView) -> int | None:
            files = view.files(OffsetRange(view.log_start, view.end))
            found = reader.first_at_or_after(self.store, ref.folder, files, view.log_start, view.end, ms)
            return None if found is None else found[0]

        return self._retry.run(f"searching {ref.tp} by time", lambda: self._follow(ref).search(find))

    def _follow(self, ref: PartitionRef) -> FollowedPartition:
        if ref not in self._followed:
            self._followed[ref] = FollowedPartition(self.store, ref, self._clock)
        return self._followed[ref]


def _chosen(meta: TopicMeta, subscription: Subscription, *, all_there: bool) -> list[PartitionRef]:
    if not isinstance(subscription, Assigned):
        return [meta.partition(number) for number in range(meta.partitions)]
    wanted = subscription.partitions[meta.name]
    if not all_there:
        wanted = tuple(number for number in wanted if number < meta.partitions)
    return [meta.partition(number) for number in wanted]


def open_to_read(root: str, options: dict[str, str]) -> Store:
    """Opening a local root would create it; reading must not."""
    folder = _local_folder(root)
    if folder is not None and not folder.is_dir():
        raise wrong("path", f"there is no folder {folder}")
    return open_store(root, fsync=False, storage_options=options)


def _local_folder(root: str) -> Path | None:
    if "://" not in root:
        return Path(root)
    return Path(unquote(urlsplit(root).path)) if root.startswith("file://") else None


def root_of_service(address: Address) -> str:
    """Where the service keeps its log, as it sees it: executors must be able to read the same address."""
    if address.server is None:
        raise InvalidRequest("neither a path nor a server")
    # An HTTP client is loaded by those who need one.
    from sluice.streaming.http_client import Connection, RetryPolicy

    connection = Connection(
        address.server, address.token, ca_file=address.ca_file, retry=RetryPolicy(budget_s=ASK_WITHIN_S)
    )
    try:
        cluster = connection.json("GET", "/v3/clusters/-", repeatable=True)
    finally:
        connection.close()
    root = cluster.get("storage_root") if isinstance(cluster, dict) else None
    if not isinstance(root, str) or root.startswith("memory:"):
        raise wrong("server", f"{address.server} does not tell where its storage is: give it as 'path'")
    return root
