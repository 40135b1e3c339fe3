"""What each call needs: one table for all routes. What is not in it needs admin, and a test names it.

Names in bodies cannot be seen here: such a call declares that it needs the operation on anything at all, and its
handler checks each name with `auth.check_topic` or `auth.check_group`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from sluice.log_store.tokens_grants import Operation, Resource


class Level(Enum):
    OPEN = "open"
    """No token."""
    TOKEN = "any token"  # noqa: S105
    """Any valid token; the handler shows only what that one may see."""
    GRANT = "grant"


@dataclass(frozen=True, slots=True)
class Need:
    operation: Operation | None = None
    """None: any grant on it, which is what looking at it takes."""
    resource: Resource = Resource.TOPIC
    parameter: str | None = None
    """The part of the path that names it; None: the operation must be allowed on something."""
    every: str | None = None
    """A value of the parameter that means all of them: the handler shows only what may be seen."""
    level: Level = Level.GRANT


OPEN = Need(level=Level.OPEN)
TOKEN = Need(level=Level.TOKEN)
ADMIN = Need(Operation.ADMIN, Resource.CLUSTER)

PRODUCE = Need(Operation.PRODUCE, parameter="t")
CONSUME = Need(Operation.CONSUME, parameter="t")
DESCRIBE = Need(parameter="t")
TOPIC_ADMIN = Need(Operation.ADMIN, parameter="t")
PRODUCE_SOMEWHERE = Need(Operation.PRODUCE)
ADMIN_SOMEWHERE = Need(Operation.ADMIN)
CONSUME_GROUP = Need(Operation.CONSUME, Resource.GROUP, "g")
GROUP_ADMIN = Need(Operation.ADMIN, Resource.GROUP, "g")
DESCRIBE_GROUP = Need(None, Resource.GROUP, "g")

_CLUSTER = "/v3/clusters/{c}"
_TOPIC = f"{_CLUSTER}/topics/{{t}}"
_INSTANCE = "/consumers/{g}/instances/{i}"
_PARTITION = f"{_TOPIC}/partitions/{{p}}"
_GROUP = f"{_CLUSTER}/consumer-groups/{{g}}"
_SINK = f"{_CLUSTER}/sinks/{{query}}"

NEEDS: Mapping[tuple[str, str], Need] = {
    # --- operations
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/assets/{file}"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/metrics"): TOKEN,
    # --- the console: its files hold nothing of the cluster
    ("GET", "/console"): OPEN,
    ("GET", "/console/"): OPEN,
    ("GET", "/console/assets/{file}"): OPEN,
    ("GET", "/console/session"): TOKEN,
    ("GET", "/console/events"): TOKEN,
    ("GET", f"{_CLUSTER}/jobs"): ADMIN,
    ("GET", f"{_CLUSTER}/jobs/{{job}}/runs"): ADMIN,
    ("GET", "/v3/clusters"): TOKEN,
    ("GET", _CLUSTER): TOKEN,
    # --- access tokens
    ("POST", f"{_CLUSTER}/tokens"): ADMIN,
    ("GET", f"{_CLUSTER}/tokens"): ADMIN,
    ("GET", f"{_CLUSTER}/tokens/{{id}}"): ADMIN,
    ("DELETE", f"{_CLUSTER}/tokens/{{id}}"): ADMIN,
    # --- quotas
    ("GET", f"{_CLUSTER}/quotas"): ADMIN,
    ("POST", f"{_CLUSTER}/quotas"): ADMIN,
    # --- the broker
    ("GET", "/brokers"): TOKEN,
    ("GET", f"{_CLUSTER}/brokers"): TOKEN,
    ("GET", f"{_CLUSTER}/brokers/{{b}}"): TOKEN,
    ("GET", f"{_CLUSTER}/brokers/{{b}}/configs"): ADMIN,
    ("GET", f"{_CLUSTER}/brokers/{{b}}/log-dirs"): ADMIN,
    ("GET", f"{_PARTITION}/replicas"): DESCRIBE,
    # --- produce; it also creates a missing topic where auto.create.topics.enable allows that
    ("POST", "/topics/{t}"): PRODUCE,
    ("POST", "/topics/{t}/partitions/{p}"): PRODUCE,
    ("POST", f"{_TOPIC}/records"): PRODUCE,
    ("POST", f"{_TOPIC}/records:batch"): PRODUCE,
    ("POST", f"{_CLUSTER}/producers"): PRODUCE_SOMEWHERE,
    # --- Spark sinks; topics in bodies are checked by the handler
    ("PUT", f"{_TOPIC}/sinks/{{query}}/batches/{{batch}}/parts/{{part}}"): PRODUCE,
    ("POST", f"{_SINK}/batches/{{batch}}"): PRODUCE_SOMEWHERE,
    ("DELETE", f"{_SINK}/batches/{{batch}}"): PRODUCE_SOMEWHERE,
    ("GET", _SINK): PRODUCE_SOMEWHERE,
    # --- read
    ("GET", f"{_PARTITION}/records"): CONSUME,
    ("GET", f"{_TOPIC}/records:search"): CONSUME,
    ("GET", f"{_PARTITION}/offset"): CONSUME,
    ("GET", "/topics/{t}/partitions/{p}/offsets"): CONSUME,
    # --- v2 consumers
    ("POST", "/consumers/{g}"): CONSUME_GROUP,
    ("DELETE", _INSTANCE): CONSUME_GROUP,
    ("POST", f"{_INSTANCE}/subscription"): CONSUME_GROUP,
    ("GET", f"{_INSTANCE}/subscription"): CONSUME_GROUP,
    ("DELETE", f"{_INSTANCE}/subscription"): CONSUME_GROUP,
    ("POST", f"{_INSTANCE}/assignments"): CONSUME_GROUP,
    ("GET", f"{_INSTANCE}/assignments"): CONSUME_GROUP,
    ("GET", f"{_INSTANCE}/records"): CONSUME_GROUP,
    ("POST", f"{_INSTANCE}/positions"): CONSUME_GROUP,
    ("GET", f"{_INSTANCE}/positions"): CONSUME_GROUP,
    ("POST", f"{_INSTANCE}/positions/beginning"): CONSUME_GROUP,
    ("POST", f"{_INSTANCE}/positions/end"): CONSUME_GROUP,
    ("POST", f"{_INSTANCE}/offsets"): CONSUME_GROUP,
    ("GET", f"{_INSTANCE}/offsets"): CONSUME_GROUP,
    # --- topics
    ("GET", "/topics"): TOKEN,
    ("GET", "/topics/{t}"): DESCRIBE,
    ("GET", "/topics/{t}/partitions"): DESCRIBE,
    ("GET", "/topics/{t}/partitions/{p}"): DESCRIBE,
    ("GET", f"{_CLUSTER}/topics"): TOKEN,
    ("POST", f"{_CLUSTER}/topics"): ADMIN_SOMEWHERE,
    ("GET", _TOPIC): DESCRIBE,
    ("PATCH", _TOPIC): TOPIC_ADMIN,
    ("DELETE", _TOPIC): TOPIC_ADMIN,
    ("GET", f"{_TOPIC}/partitions"): DESCRIBE,
    ("GET", _PARTITION): DESCRIBE,
    ("GET", f"{_PARTITION}/layout"): DESCRIBE,
    ("GET", f"{_TOPIC}/configs"): Need(parameter="t", every="-"),
    ("GET", f"{_TOPIC}/configs/{{name}}"): DESCRIBE,
    ("PUT", f"{_TOPIC}/configs/{{name}}"): TOPIC_ADMIN,
    ("DELETE", f"{_TOPIC}/configs/{{name}}"): TOPIC_ADMIN,
    ("POST", f"{_TOPIC}/configs:alter"): TOPIC_ADMIN,
    # --- consumer groups; topics in bodies are checked by the handlers
    ("GET", f"{_CLUSTER}/consumer-groups"): TOKEN,
    ("GET", _GROUP): DESCRIBE_GROUP,
    ("DELETE", _GROUP): GROUP_ADMIN,
    ("GET", f"{_GROUP}/consumers"): DESCRIBE_GROUP,
    ("GET", f"{_GROUP}/consumers/{{m}}"): DESCRIBE_GROUP,
    ("GET", f"{_GROUP}/consumers/{{m}}/assignments"): DESCRIBE_GROUP,
    ("GET", f"{_GROUP}/lags"): DESCRIBE_GROUP,
    ("GET", f"{_GROUP}/lags/{{t}}/partitions/{{p}}"): DESCRIBE_GROUP,
    ("GET", f"{_GROUP}/lag-summary"): DESCRIBE_GROUP,
    ("POST", f"{_GROUP}/members:join"): CONSUME_GROUP,
    ("POST", f"{_GROUP}/members:sync"): CONSUME_GROUP,
    ("POST", f"{_GROUP}/members:heartbeat"): CONSUME_GROUP,
    ("POST", f"{_GROUP}/members:leave"): CONSUME_GROUP,
    ("GET", f"{_GROUP}/offsets"): CONSUME_GROUP,
    ("POST", f"{_GROUP}/offsets"): CONSUME_GROUP,
    ("DELETE", f"{_GROUP}/offsets"): GROUP_ADMIN,
    ("POST", f"{_GROUP}/offsets:reset"): GROUP_ADMIN,
    # --- maintenance
    ("POST", f"{_TOPIC}/records:delete"): TOPIC_ADMIN,
    ("POST", f"{_PARTITION}/plans"): TOPIC_ADMIN,
    ("POST", f"{_PARTITION}/files:sweep"): TOPIC_ADMIN,
    ("POST", f"{_CLUSTER}/consumer-groups:expire"): ADMIN,
    ("GET", f"{_CLUSTER}/clock"): TOKEN,
    ("POST", f"{_CLUSTER}/clock:confirm"): ADMIN,
    ("GET", f"{_PARTITION}/segments"): TOPIC_ADMIN,
}

OPEN_PATHS = frozenset(path for (_, path), need in NEEDS.items() if need == OPEN and "{" not in path)


def need_of(methods: Collection[str], path: str) -> Need:
    """The need of a route. ADMIN if one of its methods is not declared, or if they differ."""
    found = [NEEDS.get((method, path), ADMIN) for method in methods]
    return found[0] if found and all(need == found[0] for need in found) else ADMIN
