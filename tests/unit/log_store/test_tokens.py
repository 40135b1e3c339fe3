"""Access tokens: what grants allow, what is stored, and the rules that keep a cluster from locking itself out."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.log_store.catalog_records import encode
from sluice.log_store.errors import (
    AuthenticationFailed,
    CorruptData,
    InvalidRequest,
    PolicyViolation,
    ResourceNotFound,
    UnsupportedFormat,
)
from sluice.log_store.inspection import inspect
from sluice.log_store.tokens import MAX_GRANTS, Token, TokenRegistry, parse_grants
from sluice.log_store.tokens_admin import Issued, issue, revoke
from sluice.log_store.tokens_grants import CLUSTER_ADMIN, Grant, Grants, Operation, Resource
from sluice.log_store.tokens_text import hash_of, matches, new_token, split
from tests import counts
from tests.support.logs import NOW_MS, folder_cluster, memory_cluster

PRODUCE, CONSUME, ADMIN = Operation.PRODUCE, Operation.CONSUME, Operation.ADMIN
TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
NAMES = st.text("ab-._", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))
USUAL_NAMES = NAMES.filter(lambda name: not name.startswith("__"))
HASH = hash_of(b"secret")


def grants(*texts: str) -> Grants:
    return Grants(parse_grants(texts))


def token(name: str = "n", *texts: str, token_id: str = "a", expires_ms: int | None = None) -> Token:
    return Token(token_id, name, parse_grants(texts or ("admin",)), HASH, NOW_MS, expires_ms)


def registry(*tokens: Token) -> TokenRegistry:
    found = TokenRegistry()
    for one in tokens:
        found.apply_all(found.create(one).records)
    return found


# --- grants ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "admin",
        "produce:topic:orders",
        "consume:topic:orders-*",
        "admin:topic:*",
        "consume:group:a.b_c",
        "admin:group:*",
    ],
)
def test_a_grant_is_written_as_it_was_read(text: str) -> None:
    assert str(Grant.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "Admin",
        "admin ",
        "produce",
        "produce:topic",
        "produce:topic:",
        "produce:topic:a:b",
        "produce:group:a",
        "read:topic:a",
        "produce:cluster:*",
        "admin:cluster:*",
        "produce:topic:a*b",
        "produce:topic:**",
        "produce:topic:*a",
        "produce:topic:a b",
        "produce:topic:ä",
        "produce:topic:a\n",
        "produce:topic:a/../b",
        "produce:topic:..",
        "produce:topic:__consumer_offsets",
        "consume:topic:__*",
        "produce:topic:" + "a" * 250,
    ],
)
def test_a_grant_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Grant.parse(text)
    assert refused.value.fields["field"] == "grants"


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES)
@given(pattern=USUAL_NAMES, star=st.booleans(), name=USUAL_NAMES, operation=st.sampled_from([PRODUCE, CONSUME, ADMIN]))
def test_a_pattern_is_a_name_or_a_prefix(pattern: str, star: bool, name: str, operation: Operation) -> None:
    allowed = grants(f"{operation}:topic:{pattern}{'*' if star else ''}")
    covers = name.startswith(pattern) if star else name == pattern
    for asked in (PRODUCE, CONSUME, ADMIN):
        assert allowed.allow(asked, TOPIC, name) == (covers and operation in (asked, ADMIN))
    assert allowed.allow(None, TOPIC, name) == covers
    assert not allowed.allow(CONSUME, GROUP, name)
    assert not allowed.allow(ADMIN, CLUSTER, None)


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES)
@given(rest=st.text("ab_-", max_size=4), pattern=st.sampled_from(["*", "_*"]))
def test_no_pattern_reaches_internal_topics(rest: str, pattern: str) -> None:
    allowed = grants(*(f"{operation}:topic:{pattern}" for operation in Operation))
    for operation in (*Operation, None):
        assert not allowed.allow(operation, TOPIC, f"__{rest}")
    assert grants("admin").allow(CONSUME, TOPIC, f"__{rest}")


def test_admin_of_the_cluster_may_do_everything() -> None:
    allowed = grants("admin")
    for operation in (*Operation, None):
        for resource in Resource:
            assert allowed.allow(operation, resource, "any")
            assert allowed.allow(operation, resource, None)


def test_no_grants_allow_nothing() -> None:
    for operation in (*Operation, None):
        for resource in Resource:
            assert not grants().allow(operation, resource, "any")
            assert not grants().allow(operation, resource, None)


def test_something_of_a_kind_is_not_another_kind() -> None:
    allowed = grants("produce:topic:a", "consume:group:g")
    assert allowed.allow(PRODUCE, TOPIC, None)
    assert not allowed.allow(CONSUME, TOPIC, None)
    assert allowed.allow(CONSUME, GROUP, None)
    assert not allowed.allow(CONSUME, GROUP, "a")
    assert not allowed.allow(CONSUME, TOPIC, "g")


def test_repeated_grants_are_kept_once_and_too_many_refused() -> None:
    assert parse_grants(["admin", "consume:group:a", "admin"]) == (CLUSTER_ADMIN, Grant(CONSUME, GROUP, "a"))
    with pytest.raises(InvalidRequest):
        parse_grants(["admin"] * (MAX_GRANTS + 1))


# --- the text ----------------------------------------------------------------------------------


def test_a_token_is_random_and_only_its_hash_is_known() -> None:
    made = [new_token() for _ in range(200)]
    assert len({text for text, _, _ in made}) == len({token_id for _, token_id, _ in made}) == 200
    for text, token_id, stored in made:
        assert re.fullmatch(r"sluice_[0-9A-Za-z]{16}_[0-9A-Za-z]{43}", text)
        found = split(text.encode())
        assert found is not None
        assert found[0] == token_id
        assert matches(found[1], stored)
        assert found[1].decode() not in stored
    assert set("".join(text[7:] for text, _, _ in made)) > set("09azAZ")


@given(st.binary(max_size=90))
def test_other_bytes_are_no_token(data: bytes) -> None:
    assert split(data) is None


def test_a_secret_must_be_the_one() -> None:
    assert matches(b"secret", HASH)
    assert not matches(b"Secret", HASH)
    assert not matches(b"secret", None)


# --- the rules ---------------------------------------------------------------------------------


def test_the_first_token_must_grant_admin() -> None:
    for texts in (("produce:topic:*",), ("admin:topic:*", "admin:group:*")):
        with pytest.raises(PolicyViolation):
            TokenRegistry().create(token("n", *texts))
    with pytest.raises(PolicyViolation):
        TokenRegistry().create(Token("a", "n", (), HASH, NOW_MS))
    assert registry(token(), Token("b", "n", (), HASH, NOW_MS))


def test_who_proved_nothing_can_only_make_the_first() -> None:
    assert TokenRegistry().create(token(), first_only=True).records
    with pytest.raises(AuthenticationFailed):
        registry(token()).create(token(token_id="b"), first_only=True)


def test_the_last_admin_token_stays() -> None:
    found = registry(token(), token("x", "produce:topic:*", token_id="b"))
    with pytest.raises(PolicyViolation):
        found.revoke("a", NOW_MS)
    found.apply_all(found.create(token(token_id="c")).records)
    found.apply_all(found.revoke("a", NOW_MS).records)
    with pytest.raises(PolicyViolation):
        found.revoke("c", NOW_MS)
    found.apply_all(found.revoke("b", NOW_MS).records)
    assert [one.token_id for one in found.all()] == ["c"]


def test_an_expired_admin_token_is_no_admin_but_still_a_token() -> None:
    found = registry(token(expires_ms=NOW_MS + 10), token(token_id="b"))
    assert found.revoke("b", NOW_MS).records
    with pytest.raises(PolicyViolation):
        found.revoke("b", NOW_MS + 10)
    assert found.revoke("a", NOW_MS + 10).records
    assert registry(token(expires_ms=NOW_MS + 1))


def test_unknown_ids_and_wrong_facts_are_refused() -> None:
    with pytest.raises(ResourceNotFound):
        registry(token()).revoke("z", NOW_MS)
    for name in ("", "x" * 201, "two\nlines", "\x1b[2J"):
        with pytest.raises(InvalidRequest):
            TokenRegistry().create(token(name))
    with pytest.raises(InvalidRequest):
        TokenRegistry().create(token(expires_ms=NOW_MS))
    with pytest.raises(ValueError, match="fresh"):
        registry(token()).create(token())


# --- what is stored ----------------------------------------------------------------------------


def test_a_replay_gives_the_same_and_every_change_a_new_version() -> None:
    found, again = TokenRegistry(), TokenRegistry()
    records = [
        *found.create(token()).records,
        *registry(token()).create(token("b", "consume:group:g-*", token_id="b", expires_ms=NOW_MS + 1)).records,
    ]
    versions = []
    for one in records:
        found.apply(*one)
        versions.append(found.version)
    again.apply_all(records)
    assert again == found != TokenRegistry()
    assert versions == sorted(set(versions))
    gone = found.revoke("b", NOW_MS).records
    found.apply_all(gone)
    assert found.find("b") is None
    again.apply_all([*gone, *gone])
    assert again == found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ({"type": "token"}, {"format": 1}),
        ({"type": "token", "id": "a"}, {"format": 1}),
        ({"type": "token", "id": "a"}, {"grants": ["fly"], "secret_sha256": HASH}),
        ({"type": "token", "id": "a"}, {"secret_sha256": "plain"}),
        ({"type": "token", "id": "a"}, {"grants": 7}),
    ],
)
def test_a_damaged_record_is_found(key: dict[str, object], value: dict[str, object]) -> None:
    whole = {"format": 1, "name": "n", "grants": [], "secret_sha256": HASH, "created_ms": 1, "expires_ms": None}
    data = value if "format" in value else whole | value
    with pytest.raises(CorruptData) as found:
        TokenRegistry().apply(encode(key), encode(data))
    assert HASH not in str(found.value)


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(UnsupportedFormat):
        TokenRegistry().apply(encode({"type": "token", "id": "a"}), encode({"format": 2}))


def test_secrets_are_in_no_repr() -> None:
    assert HASH not in repr(token())
    assert "sluice_" not in repr(Issued(token(), "sluice_a_b"))


def test_tokens_live_in_the_catalog_beside_topics(tmp_path) -> None:
    with folder_cluster(tmp_path / "root") as cluster:
        log = cluster.open()
        log.create_topic("t")
        admin = issue(log.catalog, "ops", ["admin"], now_ms=NOW_MS)
        other = issue(log.catalog, "web", ["produce:topic:t"], now_ms=NOW_MS, expires_in_ms=5)
        gone = issue(log.catalog, "old", [], now_ms=NOW_MS)
        revoke(log.catalog, gone.token.token_id, now_ms=NOW_MS)
        before = log.catalog.tokens.all()
        assert {one.name for one in before} == {"ops", "web"}
        for opened in (cluster.reopen, cluster.crash):
            log = opened()
            assert log.catalog.tokens.all() == before
            assert log.topic("t").partitions == 1
        assert log.catalog.tokens.get(other.token.token_id).expires_ms == NOW_MS + 5
        look = inspect(cluster.store)
        assert look is not None
        assert look.problems == []
    secret = admin.text.rsplit("_", 1)[1].encode()
    kept = [path.read_bytes() for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert kept
    assert not any(secret in data for data in kept)


def test_a_token_record_can_be_read_by_a_person() -> None:
    ((key, value),) = TokenRegistry().create(token("ops", "admin", "consume:group:*")).records
    assert json.loads(key) == {"type": "token", "id": "a"}
    assert value is not None
    assert json.loads(value) == {
        "format": 1,
        "name": "ops",
        "grants": ["admin", "consume:group:*"],
        "secret_sha256": HASH,
        "created_ms": NOW_MS,
        "expires_ms": None,
    }


def test_a_life_must_be_of_this_world() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        for life in (0, -1, 2**63):
            with pytest.raises(InvalidRequest):
                issue(log.catalog, "n", ["admin"], now_ms=NOW_MS, expires_in_ms=life)
        assert not log.catalog.tokens
