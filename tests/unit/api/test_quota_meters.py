"""Which quota holds, who counts against it, and what is remembered."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api.quotas_meters import Client, Meters
from sluice.log_store.catalog_quotas import (
    CONSUMER_RATE,
    DEFAULT,
    MUTATION_RATE,
    PRODUCER_RATE,
    QuotaEntity,
    QuotaRegistry,
)
from sluice.log_store.catalog_state import CatalogState
from sluice.log_store.errors import CorruptData, InvalidRequest, PolicyViolation

ALICE = Client("alice", "app")
ORDER = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]
"""As Kafka lists it, most specific first."""


def rules(*quotas: tuple[QuotaEntity, dict[str, object]]) -> QuotaRegistry:
    state = CatalogState()
    change(state, *quotas)
    return state.quotas


def change(state: CatalogState, *quotas: tuple[QuotaEntity, dict[str, object]]) -> None:
    state.apply_all(state.quotas.alter(quotas).records)


# --- which one holds -----------------------------------------------------------------------------


@given(st.sets(st.sampled_from(range(len(ORDER)))))
def test_the_most_specific_wins(present: set[int]) -> None:
    registry = rules(*((ORDER[place], {PRODUCER_RATE: place + 1}) for place in present))
    found = registry.bound(PRODUCER_RATE, *ALICE)
    assert (None if found is None else found.rate) == (min(present) + 1 if present else None)
    assert registry.bound(CONSUMER_RATE, *ALICE) is None


@pytest.mark.parametrize(("specific", "general"), list(pairwise(ORDER)))
def test_an_entity_without_this_kind_of_quota_does_not_count(specific: QuotaEntity, general: QuotaEntity) -> None:
    registry = rules((specific, {CONSUMER_RATE: 1}), (general, {PRODUCER_RATE: 2}))
    found = registry.bound(PRODUCER_RATE, *ALICE)
    assert found is not None
    assert found.rate == 2


def test_what_is_shared_and_what_is_each_ones_own() -> None:
    """A user's quota is shared by its clients; that of a client id by its users; one of both belongs to the pair."""
    others = [Client("alice", "other"), Client("bob", "app")]
    for entity, shared in zip(ORDER, ["", "", "client", "", "", "client", "user", "user"], strict=True):
        meters = Meters(rules((entity, {PRODUCER_RATE: 1})))
        meters.charge(PRODUCER_RATE, ALICE, None, 1000, 0.0)
        waits = [meters.wait_ms(PRODUCER_RATE, other, None, 0.0) > 0 for other in others]
        assert waits == [shared == "client", shared == "user"], entity


def test_a_topic_has_a_quota_of_its_own_beside_the_senders() -> None:
    registry = rules(
        (QuotaEntity(topic="t"), {PRODUCER_RATE: 10}),
        (QuotaEntity(topic=DEFAULT), {PRODUCER_RATE: 20}),
        (QuotaEntity("alice"), {PRODUCER_RATE: 40}),
    )
    meters = Meters(registry)
    assert meters.charge(PRODUCER_RATE, ALICE, "t", 800, 0.0) == 70_000  # 800 / 10 - 10 s, the longer of the two
    assert meters.wait_ms(PRODUCER_RATE, Client("bob", "x"), "t", 0.0) == 70_000
    assert meters.wait_ms(PRODUCER_RATE, ALICE, "u", 0.0) == 10_000  # its own: 800 / 40 - 10 s
    assert meters.wait_ms(PRODUCER_RATE, Client("bob", "x"), "u", 0.0) == 0


# --- over time -----------------------------------------------------------------------------------


def test_one_large_request_passes_and_the_next_waits_until_the_time_is_over() -> None:
    meters = Meters(rules((QuotaEntity("alice"), {PRODUCER_RATE: 100})))
    assert meters.wait_ms(PRODUCER_RATE, ALICE, None, 0.0) == 0
    assert meters.charge(PRODUCER_RATE, ALICE, None, 5_000, 0.0) == 40_000
    assert meters.wait_ms(PRODUCER_RATE, ALICE, None, 39.0) == 1_000
    assert meters.wait_ms(PRODUCER_RATE, ALICE, None, 40.0) == 0
    assert meters.wait_ms(CONSUMER_RATE, ALICE, None, 0.0) == 0
    assert meters.charge(PRODUCER_RATE, ALICE, None, 100, 40.0) == 0


def test_a_changed_quota_holds_at_once() -> None:
    state = CatalogState()
    change(state, (QuotaEntity("alice"), {PRODUCER_RATE: 100}))
    meters = Meters(state.quotas)
    meters.charge(PRODUCER_RATE, ALICE, None, 5_000, 0.0)
    change(state, (QuotaEntity("alice"), {PRODUCER_RATE: 250}))
    assert meters.wait_ms(PRODUCER_RATE, ALICE, None, 0.0) == 10_000
    change(state, (QuotaEntity("alice"), {PRODUCER_RATE: 1_000}))
    assert meters.wait_ms(PRODUCER_RATE, ALICE, None, 0.0) == 0
    change(state, (QuotaEntity("alice"), {PRODUCER_RATE: None}))
    assert not meters.active


def test_mutations_are_a_bucket() -> None:
    meters = Meters(rules((QuotaEntity("alice"), {MUTATION_RATE: 2})))
    assert meters.charge(MUTATION_RATE, ALICE, None, 22, 0.0) == 0
    assert meters.charge(MUTATION_RATE, ALICE, None, 4, 0.0) == 2_000
    assert meters.wait_ms(MUTATION_RATE, ALICE, None, 1.5) == 500


# --- memory --------------------------------------------------------------------------------------


def test_memory_is_bounded_however_many_names_are_made_up() -> None:
    meters = Meters(rules((QuotaEntity(None, DEFAULT), {PRODUCER_RATE: 1})), most=50)
    for number in range(500):
        meters.charge(PRODUCER_RATE, Client("anonymous", f"c{number}"), None, 1, number / 100)
    assert len(meters) == 50


def test_idle_ones_go_first_and_who_must_wait_is_not_forgotten() -> None:
    meters = Meters(rules((QuotaEntity(None, DEFAULT), {PRODUCER_RATE: 1})), most=3)
    clients = [Client("u", name) for name in "abcd"]
    assert meters.charge(PRODUCER_RATE, clients[0], None, 100, 0.0) == 90_000
    for client in clients[1:3]:
        meters.charge(PRODUCER_RATE, client, None, 1, 0.0)
    meters.charge(PRODUCER_RATE, clients[3], None, 1, 20.0)
    assert len(meters) == 2
    assert meters.wait_ms(PRODUCER_RATE, clients[0], None, 20.0) == 70_000


# --- the catalog's part --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [{}, {"ip": "x"}, {"user": ""}, {"user": "a\nb"}, {"user": DEFAULT}, {"user": 3}, {"topic": "t", "user": "a"}],
)
def test_an_entity_that_makes_no_sense_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        QuotaEntity.parse(told)


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan"), True, "7"])
def test_a_rate_that_makes_no_sense_is_refused(rate: object) -> None:
    with pytest.raises(InvalidRequest):
        QuotaRegistry().alter([(QuotaEntity("a"), {PRODUCER_RATE: rate})])


def test_unknown_kinds_are_refused_and_topics_have_no_mutations() -> None:
    for entity, kind in ((QuotaEntity("a"), "request_percentage"), (QuotaEntity(topic="t"), MUTATION_RATE)):
        with pytest.raises(InvalidRequest, match=kind):
            QuotaRegistry().alter([(entity, {kind: 1})])


def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.log_store.catalog_quotas.MAX_ENTITIES", 2)
    with pytest.raises(PolicyViolation):
        QuotaRegistry().alter([(QuotaEntity(name), {PRODUCER_RATE: 1}) for name in "abc"])


changes = st.lists(
    st.tuples(
        st.sampled_from([QuotaEntity(u, c) for u, c in product((None, "a", DEFAULT), (None, "c", DEFAULT)) if u or c]),
        st.dictionaries(st.sampled_from([PRODUCER_RATE, CONSUMER_RATE]), st.none() | st.integers(1, 9)),
    ),
    max_size=12,
)


@given(changes)
def test_records_replay_to_the_same_table_also_after_compaction(
    steps: list[tuple[QuotaEntity, dict[str, object]]],
) -> None:
    state, model, written = CatalogState(), {}, []
    for entity, wanted in steps:
        records = state.quotas.alter([(entity, wanted)]).records
        written += records
        state.apply_all(records)
        merged = model.setdefault(entity, {}) | wanted
        model[entity] = {kind: rate for kind, rate in merged.items() if rate is not None}
    assert state.quotas.entities == {entity: values for entity, values in model.items() if values}
    again = CatalogState()
    again.apply_all(dict(written).items())
    assert again == state


def test_a_damaged_record_is_named() -> None:
    with pytest.raises(CorruptData):
        CatalogState().apply(b'{"type":"quota","entity":{"ip":"x"}}', b'{"format":1,"values":{}}')
