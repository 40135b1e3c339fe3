"""Every state that is kept in `__cluster_metadata`: each record goes to the one that knows its type."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.log_store.catalog_records import Record, record_type
from sluice.log_store.catalog_state import CatalogState
from sluice.log_store.tokens import TokenRegistry
from sluice.log_store.topic import CLUSTER_METADATA
from sluice.log_store.values import PartitionRef

METADATA_REF = PartitionRef(
    topic=CLUSTER_METADATA, topic_id="cluster-metadata", partition=0, folder=f"topics/{CLUSTER_METADATA}/0"
)
"""Where they are kept. Readers need no more of the catalog than this."""


class MetadataStates:
    def __init__(self, catalog: CatalogState | None = None) -> None:
        self.catalog = catalog or CatalogState()
        self.tokens = TokenRegistry()
        self._owners = dict.fromkeys(TokenRegistry.TYPES, self.tokens)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take one record of the topic, in the order of its offsets. The catalog refuses what nobody knows."""
        self._owners.get(record_type(key), self.catalog).apply(key, value)

    def apply_all(self, records: Iterable[Record]) -> None:
        for key, value in records:
            self.apply(key, value)
