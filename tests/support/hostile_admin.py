"""Hostile bodies for the calls that change topics, configs, tokens, quotas, producers and files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.bodies import mutations

_TOPIC = "/v3/clusters/-/topics/{t}"
_FILE = {
    "path": "00000000000000000000-3-1a2b.parquet", "size": 10, "base_offset": 0, "end_offset": 3, "records": 3,
    "min_ms": 1, "max_ms": 2, "modified_ms": 3, "file_crc": None, "footer_crc": 1, "tags": {"a": "b"},
}  # fmt: skip
CALLS: dict[tuple[str, str], Any] = {
    ("POST", "/v3/clusters/-/topics"): {
        "topic_name": "new", "partitions_count": 2, "replication_factor": 1, "validate_only": True,
        "configs": [{"name": "retention.ms", "value": "1000"}],
    },
    ("PATCH", _TOPIC): {"partitions_count": 2},
    ("PUT", f"{_TOPIC}/configs/retention.ms"): {"value": "1000"},
    ("PUT", f"{_TOPIC}/configs/cleanup.policy"): {"value": "compact"},
    ("POST", f"{_TOPIC}/configs:alter"): {
        "data": [{"name": "retention.ms", "value": 7, "operation": "SET"}], "validate_only": False,
    },
    ("POST", f"{_TOPIC}/records:delete"): {"offsets": [{"partition": 0, "before_offset": 1}]},
    ("POST", f"{_TOPIC}/partitions/0/plans"): {
        "plan_id": "p", "kind": "merge", "reason": "r", "base_version": 0, "removes": ["a"], "adds": [_FILE],
        "log_start": 0, "first_dirty": None,
    },
    ("POST", "/v3/clusters/-/producers"): {"mode": "partition", "name": "n"},
    ("POST", "/v3/clusters/-/tokens"): {"name": "n", "grants": ["produce:topic:a*"], "expires_in_ms": 1000},
    ("POST", "/v3/clusters/-/quotas"): {
        "entries": [{"entity": {"client_id": "c"}, "values": {"producer_byte_rate": 1e6}}], "validate_only": False,
    },
}  # fmt: skip
_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 1e308, 0.5, "", "..", "../../etc/passwd", "a/b",
    "\u0000", "é", "a" * 300, "x" * 20_000, "__consumer_offsets", "-", "SET", "all", [], {}, [[]], [None], {"a": None},
    ["a"] * 50, {"": ""}, "1e3", "9" * 40, " 5 ", "compact,delete", "NaN", "merge", float("nan"), float("inf"),
    "\ud800",
)  # fmt: skip


class AdminAttack(NamedTuple):
    seed: int
    method: str
    path: str
    body: bytes

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.method} {self.path}, {len(self.body)} bytes: {self.body[:300]!r}"


def admin_attacks(count: int) -> Iterator[AdminAttack]:
    return map(_attack, range(count))


def _attack(seed: int) -> AdminAttack:
    rng = random.Random(f"admin {seed}")
    method, path = rng.choice(list(CALLS))
    good = CALLS[method, path]
    kind = rng.randrange(10)
    if kind < 3:
        (body,) = mutations([json.dumps(good).encode()], 1, rng.randrange(1 << 40))
    elif kind == 3:
        body = _strange(rng)
    else:
        changed = json.loads(json.dumps(good))
        for _ in range(rng.choice((1, 1, 2))):
            changed = _changed(changed, rng)
        body = json.dumps(changed).encode()
    return AdminAttack(seed, method, path, body)


def _changed(value: Any, rng: random.Random) -> Any:
    """One value somewhere inside is another, is gone, or has a neighbour that nobody knows."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.1:
            return {key: one for key, one in value.items() if key != name}
        if kind < 0.15:
            return value | {"unknown": 1}
        return value | {name: _changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
    return rng.choice(_ODD)


def _strange(rng: random.Random) -> bytes:
    return rng.choice(
        (b"", b"null", b"[]", b"0", b'"', b"{", b"{}{}", b"\xff", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a":' * 5_000,
         b"9" * 5_000, b'{"value":' + b"9" * 5_000 + b"}", b'{"value":' + b"[" * 500 + b"]" * 500 + b"}",
         b'{"name":"\\ud800"}', b'{"topic_name":"\\udc00"}', b'{"value":NaN}', b'{"value":"\\u0000"}',
         b'{"value":1e999}', b'{"value":-Infinity}', '{"a":1}'.encode("utf-16"), b"a=1&b=2")
    )  # fmt: skip
