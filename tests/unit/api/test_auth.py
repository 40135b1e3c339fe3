"""The access check: which Authorization headers are believed, for how long, and what a refusal tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.api.auth import ANYBODY, Access, Principal, authorize, from_loopback, is_loopback
from sluice.api.auth_needs import (
    ADMIN,
    CONSUME,
    DESCRIBE,
    NEEDS,
    OPEN,
    PRODUCE,
    PRODUCE_SOMEWHERE,
    TOKEN,
    Need,
    need_of,
)
from sluice.log_store.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    NotLeader,
    TopicAuthorizationFailed,
)
from sluice.log_store.tokens import Token, TokenRegistry, parse_grants
from sluice.log_store.tokens_grants import Grants, Operation, Resource
from sluice.log_store.tokens_text import new_token
from tests import counts

NOW_MS = 1_700_000_000_000


class Cluster:
    def __init__(self) -> None:
        self.tokens = TokenRegistry()
        self.now_ms = NOW_MS
        self.fenced: NotLeader | None = None
        self.access = Access(self.tokens, lambda: self.now_ms, lambda: self.fenced)

    def issue(self, *grants: str, expires_ms: int | None = None) -> tuple[str, str]:
        """(text, id)"""
        text, token_id, stored = new_token()
        made = Token(token_id, "n", parse_grants(grants or ("admin",)), stored, NOW_MS, expires_ms)
        self.tokens.apply_all(self.tokens.create(made).records)
        return text, token_id

    def revoke(self, token_id: str) -> None:
        self.tokens.apply_all(self.tokens.revoke(token_id, self.now_ms).records)

    def ask(self, *values: str | bytes) -> Principal:
        given = [(b"authorization", value if isinstance(value, bytes) else value.encode()) for value in values]
        return self.access.authenticate({"headers": [(b"host", b"h"), *given, (b"accept", b"*/*")]})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_without_tokens_anybody_may_do_everything(cluster: Cluster) -> None:
    assert cluster.ask() is ANYBODY
    assert cluster.ask("Bearer nonsense") is ANYBODY


def test_from_the_first_token_on_one_is_needed(cluster: Cluster) -> None:
    text, token_id = cluster.issue()
    with pytest.raises(AuthenticationFailed):
        cluster.ask()
    assert cluster.ask(f"Bearer {text}").token_id == token_id


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer   {}", "Bearer {} "])
def test_the_scheme_is_not_case_sensitive(cluster: Cluster, form: str) -> None:
    text, _ = cluster.issue()
    assert cluster.ask(form.format(text)).token_id


def test_what_looks_nearly_like_a_token_is_refused_without_repeating_it(cluster: Cluster) -> None:
    text, token_id = cluster.issue()
    secret = text.rsplit("_", 1)[1]
    other = "0" if secret[0] != "0" else "1"
    for value in (
        "",
        "Bearer",
        "Bearer ",
        text,
        f"Basic {text}",
        f"Token {text}",
        f"Bearer{text}",
        f"Bearer\t{text}",
        f"Bearer {text[:-1]}",
        f"Bearer {text}x",
        f"Bearer {text} {text}",
        f"Bearer {text},{text}",
        f"Bearer sluice_{token_id}_{other}{secret[1:]}",
        f"Bearer sluice_{'0' * 16}_{secret}",
        f"Bearer sluice_{token_id}_",
        f"Bearer {secret}",
        f"Bearer {text}".encode() + b"\xff",
        "Bearer " + "ä" * 43,
        "Bearer " + "x" * 1_000_000,
        b"\xff\xfe",
        b"Bearer \x00",
    ):
        with pytest.raises(AuthenticationFailed) as refused:
            cluster.ask(value)
        assert secret not in refused.value.message
        assert token_id not in refused.value.message
    for values in ((f"Bearer {text}",) * 2, (f"Bearer {text}", "Basic x"), ("Basic x", f"Bearer {text}")):
        with pytest.raises(AuthenticationFailed):
            cluster.ask(*values)


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES)
@given(st.binary(max_size=120))
def test_any_bytes_are_an_answer(data: bytes) -> None:
    cluster = Cluster()
    cluster.issue()
    for value in (data, b"Bearer " + data, b"Bearer sluice_" + data):
        with pytest.raises(AuthenticationFailed):
            cluster.ask(value)


def test_an_unknown_id_is_told_the_same_as_a_wrong_secret(cluster: Cluster) -> None:
    _, token_id = cluster.issue()
    messages = set()
    for value in (f"sluice_{token_id}_{'a' * 43}", f"sluice_{'a' * 16}_{'a' * 43}", "sluice_x"):
        with pytest.raises(AuthenticationFailed) as refused:
            cluster.ask(f"Bearer {value}")
        messages.add(refused.value.message)
    assert len(messages) == 1


def test_revoked_tokens_are_refused_at_once_also_when_they_were_remembered(cluster: Cluster) -> None:
    cluster.issue()
    (first, first_id), (second, second_id) = cluster.issue("produce:topic:t"), cluster.issue("consume:topic:t")
    for text, token_id in ((first, first_id), (second, second_id)):
        assert cluster.ask(f"Bearer {text}") is cluster.ask(f"Bearer {text}")
        assert cluster.ask(f"Bearer {text}").token_id == token_id
    cluster.revoke(first_id)
    with pytest.raises(AuthenticationFailed):
        cluster.ask(f"Bearer {first}")
    assert cluster.ask(f"Bearer {second}").token_id == second_id


def test_expiry_is_looked_at_every_time(cluster: Cluster) -> None:
    cluster.issue()
    text, _ = cluster.issue("consume:topic:t", expires_ms=NOW_MS + 10)
    cluster.now_ms += 9
    assert cluster.ask(f"Bearer {text}")
    cluster.now_ms += 1
    with pytest.raises(AuthenticationFailed, match="expired"):
        cluster.ask(f"Bearer {text}")


def test_failures_are_not_remembered(cluster: Cluster) -> None:
    cluster.issue()
    for number in range(100):
        with pytest.raises(AuthenticationFailed):
            cluster.ask(f"Bearer sluice_{'a' * 16}_{number:043d}")
    assert not cluster.access._verified


def test_a_replaced_leader_believes_nobody(cluster: Cluster) -> None:
    text, _ = cluster.issue()
    cluster.fenced = NotLeader("another process leads", leader="http://10.0.0.7:8080")
    with pytest.raises(NotLeader):
        cluster.ask(f"Bearer {text}")


# --- needs -------------------------------------------------------------------------------------


def may(need: Need, *grants: str, **params: str) -> bool:
    principal = Principal("id", "n", Grants(parse_grants(grants)))
    try:
        authorize(principal, need, params)
    except (TopicAuthorizationFailed, GroupAuthorizationFailed, ClusterAuthorizationFailed):
        return False
    return True


def test_needs_ask_for_the_name_in_the_path() -> None:
    assert may(PRODUCE, "produce:topic:a*", t="ab")
    assert not may(PRODUCE, "produce:topic:a*", t="b")
    assert not may(PRODUCE, "consume:topic:*", t="a")
    assert may(CONSUME, "admin:topic:a", t="a")
    assert may(DESCRIBE, "produce:topic:a", t="a")
    assert not may(DESCRIBE, "produce:topic:a", t="b")
    assert may(PRODUCE_SOMEWHERE, "produce:topic:a")
    assert not may(PRODUCE_SOMEWHERE, "consume:topic:*", "consume:group:*")
    assert may(ADMIN, "admin")
    assert not may(ADMIN, "admin:topic:*", "admin:group:*")
    assert may(TOKEN)
    assert may(Need(parameter="t", every="-"), t="-")
    assert not may(Need(parameter="t", every="-"), t="a")


@pytest.mark.parametrize(
    ("need", "error"),
    [
        (PRODUCE, TopicAuthorizationFailed),
        (Need(Operation.CONSUME, Resource.GROUP, "g"), GroupAuthorizationFailed),
        (ADMIN, ClusterAuthorizationFailed),
    ],
)
def test_a_refusal_has_the_name_that_kafka_gives_it(need: Need, error: type[Exception]) -> None:
    with pytest.raises(error, match="this token may not"):
        authorize(Principal("id", "n", Grants(())), need, {"t": "a", "g": "b"})


def test_what_nobody_declared_needs_admin() -> None:
    assert need_of(["GET"], "/new") == ADMIN
    assert need_of([], "/healthz") == ADMIN
    assert need_of(["GET", "POST"], "/healthz") == ADMIN
    assert need_of(["GET"], "/healthz") == OPEN
    open_ones = {path for (_, path), need in NEEDS.items() if need == OPEN}
    console = {"/console", "/console/", "/console/assets/{file}"}
    assert open_ones == {"/healthz", "/readyz", "/docs", "/docs/assets/{file}", "/openapi.json"} | console


def test_enter_checks_both(cluster: Cluster) -> None:
    cluster.issue()
    text, _ = cluster.issue("produce:topic:a")
    scope: dict[str, Any] = {"headers": [(b"authorization", f"Bearer {text}".encode())], "path_params": {"t": "a"}}
    cluster.access.enter(scope | {"route": SimpleNamespace(need=PRODUCE)})
    cluster.access.enter({"headers": [], "route": SimpleNamespace(need=OPEN)})
    with pytest.raises(TopicAuthorizationFailed):
        cluster.access.enter(scope | {"route": SimpleNamespace(need=CONSUME)})
    with pytest.raises(AuthenticationFailed):
        cluster.access.enter({"headers": [], "route": SimpleNamespace(need=TOKEN), "path_params": {}})


# --- addresses ---------------------------------------------------------------------------------


def test_loopback_addresses() -> None:
    for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "::1%lo"):
        assert is_loopback(address)
    for address in ("0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "localhost", "", "127.0.0.1.example"):
        assert not is_loopback(address)
    assert from_loopback({"client": ("127.0.0.1", 7)})
    assert not from_loopback({"client": ("10.0.0.1", 7)})
    assert not from_loopback({"client": None})
    assert not from_loopback({})
