"""Quotas as the catalog keeps them: for whom which limit holds, and which of several limits wins.

An entity names a user, a client id, both, or a topic. `None` in a place means that the entity does not speak of it,
`DEFAULT` that it speaks of everybody who has no entity of their own. Changed by `apply` alone, like the rest of the
catalog; readers on other threads see one whole table or the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice.log_store.catalog_records import Change, Record, encode, record
from sluice.log_store.errors import InvalidRequest, PolicyViolation

QUOTA_TYPE = "quota"
PRODUCER_RATE = "producer_byte_rate"
CONSUMER_RATE = "consumer_byte_rate"
MUTATION_RATE = "controller_mutation_rate"
KINDS = (PRODUCER_RATE, CONSUMER_RATE, MUTATION_RATE)
TOPIC_KINDS = (PRODUCER_RATE, CONSUMER_RATE)

DEFAULT: Final = "<default>"
"""Kafka's own name for it; no user, client id or topic can be called so."""
MAX_ENTITIES = 10_000
MAX_NAME = 249
PARTS = ("user", "client_id", "topic")


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    user: str | None = None
    client_id: str | None = None
    topic: str | None = None

    @classmethod
    def parse(cls, told: Mapping[str, object]) -> QuotaEntity:
        """From `{"user": "alice"}`; null means the default, a missing member that it is not spoken of."""
        unknown = sorted(set(told) - set(PARTS))
        if unknown:
            raise InvalidRequest(f"entity.{unknown[0]}: an entity has user, client_id or topic", field="entity")
        entity = cls(**{part: _name(part, told[part]) for part in PARTS if part in told})
        if entity == cls():
            raise InvalidRequest("entity: must name a user, a client_id or a topic", field="entity")
        if entity.topic is not None and (entity.user, entity.client_id) != (None, None):
            raise InvalidRequest("entity: a topic stands alone", field="entity")
        return entity

    def told(self) -> dict[str, str | None]:
        """The form that `parse` takes."""
        named = ((part, getattr(self, part)) for part in PARTS)
        return {part: None if name == DEFAULT else name for part, name in named if name is not None}


def _name(part: str, given: object) -> str:
    if given is None:
        return DEFAULT
    if not (isinstance(given, str) and 1 <= len(given) <= MAX_NAME and given.isprintable() and given != DEFAULT):
        raise InvalidRequest(
            f"entity.{part}: must be null, or a name of 1 to {MAX_NAME} printable characters", field=f"entity.{part}"
        )
    return given


@dataclass(frozen=True, slots=True)
class QuotaBound:
    """The limit that holds, and whose it is: what counts against it is counted under `owner`."""

    owner: QuotaEntity
    rate: float


Values = Mapping[str, float]


class QuotaRegistry:
    def __init__(self) -> None:
        self.entities: Mapping[QuotaEntity, Values] = {}
        """Replaced as a whole at each change. Empty: nobody is limited, and nothing else needs a look."""

    def __eq__(self, other: object) -> bool:
        return self.entities == other.entities if isinstance(other, QuotaRegistry) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable

    # --- questions -----------------------------------------------------------------------------

    def bound(self, kind: str, user: str, client_id: str) -> QuotaBound | None:
        """The most specific limit of this kind for a user and a client id (the order is Kafka's)."""
        entities = self.entities
        both, user_alone, client_alone = QuotaEntity(user, client_id), QuotaEntity(user), QuotaEntity(None, client_id)
        for entity, owner in (
            (both, both),
            (QuotaEntity(user, DEFAULT), both),
            (user_alone, user_alone),
            (QuotaEntity(DEFAULT, client_id), both),
            (QuotaEntity(DEFAULT, DEFAULT), both),
            (QuotaEntity(DEFAULT), user_alone),
            (client_alone, client_alone),
            (QuotaEntity(None, DEFAULT), client_alone),
        ):
            values = entities.get(entity)
            if values is not None and kind in values:
                return QuotaBound(owner, values[kind])
        return None

    def topic_bound(self, kind: str, topic: str) -> QuotaBound | None:
        """The limit of a topic, whoever uses it. It holds beside that of the user and client."""
        owner = QuotaEntity(topic=topic)
        for entity in (owner, QuotaEntity(topic=DEFAULT)):
            values = self.entities.get(entity)
            if values is not None and kind in values:
                return QuotaBound(owner, values[kind])
        return None

    # --- commands ------------------------------------------------------------------------------

    def alter(self, changes: Iterable[tuple[QuotaEntity, Mapping[str, object]]]) -> Change[dict[QuotaEntity, Values]]:
        """Set limits; None removes one. All of it or nothing. Answers the entities as they will be."""
        table = dict(self.entities)
        after: dict[QuotaEntity, Values] = {}
        for entity, wanted in changes:
            after[entity] = table[entity] = _merged(entity, table.get(entity, {}), wanted)
        if sum(bool(values) for values in table.values()) > MAX_ENTITIES:
            raise PolicyViolation(f"quotas: there may be at most {MAX_ENTITIES} entities")
        changed = {entity: values for entity, values in after.items() if values != self.entities.get(entity, {})}
        return Change(tuple(_record(entity, values) for entity, values in changed.items()), after)

    # --- replay --------------------------------------------------------------------------------

    def apply(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        try:
            entity = QuotaEntity.parse(key["entity"])
        except InvalidRequest as error:
            raise ValueError(error.message) from error
        table = dict(self.entities)
        table.pop(entity, None)
        if value is not None:
            table[entity] = {str(kind): float(rate) for kind, rate in value["values"].items()}
        self.entities = table


def _merged(entity: QuotaEntity, values: Values, wanted: Mapping[str, object]) -> Values:
    allowed = KINDS if entity.topic is None else TOPIC_KINDS
    merged = dict(values)
    for kind, rate in wanted.items():
        if kind not in allowed:
            raise InvalidRequest(f"values.{kind[:80]}: must be one of {', '.join(allowed)}", field="values")
        if rate is None:
            merged.pop(kind, None)
        elif isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= sys.float_info.max:
            raise InvalidRequest(f"values.{kind}: must be a number above 0, or null", field=f"values.{kind}")
        else:
            merged[kind] = float(rate)
    return merged


def _record(entity: QuotaEntity, values: Values) -> Record:
    key = {"type": QUOTA_TYPE, "entity": entity.told()}
    return record(key, {"values": dict(values)}) if values else (encode(key), None)
