"""What the cluster is made of: its one broker, the broker's settings, and what lies on its disk."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from sluice.api.errors import NotFound
from sluice.api.resource_models import BrokerConfigList, BrokerList, BrokerResource, LogDirList, ReplicaList, V2Brokers
from sluice.api.resources import Json, Links
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service
from sluice.api.topics import V3, led_partition, links_of
from sluice.conf.declare import keys_of
from sluice.conf.settings import GROUPS
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.errors import InvalidRequest, SluiceError
from sluice.log_store.inspection import SMALL_BYTES
from sluice.log_store.partition import PartitionLog

router = APIRouter(tags=["cluster"], route_class=LimitedRoute)
BROKER_ID = 0
_BROKERS = f"{V3}/{{c}}/brokers"
PAGE = 1_000


def _check_broker(broker: str, *, every: bool = False) -> None:
    if broker != str(BROKER_ID) and not (every and broker == "-"):
        raise NotFound(f"there is no broker {broker[:40]!r}: the only one is {BROKER_ID}", field="broker_id")


@router.get("/brokers", summary="Ids of the brokers", response_model=V2Brokers)
async def v2_brokers() -> dict[str, list[int]]:
    return {"brokers": [BROKER_ID]}


@router.get(_BROKERS, summary="Brokers of the cluster", response_model=BrokerList)
async def list_brokers(request: Request, c: str) -> JSONResponse:
    service, links = links_of(request, c)
    return JSONResponse(links.listed("KafkaBrokerList", ("brokers",), [_broker(request, service, links)]))


@router.get(f"{_BROKERS}/{{b}}", summary="One broker", response_model=BrokerResource)
async def get_broker(request: Request, c: str, b: str) -> JSONResponse:
    service, links = links_of(request, c)
    _check_broker(b)
    return JSONResponse(_broker(request, service, links))


def _broker(request: Request, service: Service, links: Links) -> Json:
    address = urlsplit(service.log.settings.cluster.advertised_address or str(request.base_url))
    path = ("brokers", BROKER_ID)
    body = {
        "cluster_id": links.cluster_id,
        "broker_id": BROKER_ID,
        "host": address.hostname,
        "port": address.port,
        "rack": None,
        "epoch": service.log.runtime.leadership.epoch,
        "fenced": service.log.fenced,
        "configs": links.related(*path, "configs"),
        "log_dirs": links.related(*path, "log-dirs"),
    }
    return links.resource("KafkaBroker", path, body)


# --- settings ------------------------------------------------------------------------------------


@router.get(
    f"{_BROKERS}/{{b}}/configs", summary="Settings of a broker, secrets left out", response_model=BrokerConfigList
)
async def broker_configs(request: Request, c: str, b: str) -> JSONResponse:
    """`-` for all brokers, as Confluent REST has it."""
    service, links = links_of(request, c)
    _check_broker(b, every=True)
    path = ("brokers", b, "configs")
    return JSONResponse(links.listed("KafkaBrokerConfigList", path, _configs(service, links)))


def _configs(service: Service, links: Links) -> list[Json]:
    found = []
    for group, kind in GROUPS.items():
        for attribute, key in keys_of(kind):
            value = getattr(getattr(service.log.settings, group), attribute)
            source = "DEFAULT_CONFIG" if value == key.default else "STATIC_BROKER_CONFIG"
            body = {
                "cluster_id": links.cluster_id,
                "broker_id": BROKER_ID,
                "name": key.name,
                "value": None if key.secret else str(value).lower() if isinstance(value, bool) else str(value),
                "is_default": value == key.default,
                "is_read_only": True,
                "is_sensitive": key.secret,
                "source": source,
                "synonyms": [],
                "doc": key.doc,
            }
            found.append(links.resource("KafkaBrokerConfig", ("brokers", BROKER_ID, "configs", key.name), body))
    return found


# --- replicas and files --------------------------------------------------------------------------


@router.get(f"{V3}/{{c}}/topics/{{t}}/partitions/{{p}}/replicas", summary="Replicas", response_model=ReplicaList)
async def list_replicas(request: Request, c: str, t: str, p: int) -> JSONResponse:
    service, links = links_of(request, c)
    number = service.log.topic(t).partition(p).partition
    path = ("topics", t, "partitions", number, "replicas")
    body = {
        "cluster_id": links.cluster_id,
        "topic_name": t,
        "partition_id": number,
        "broker_id": BROKER_ID,
        "is_leader": True,
        "is_in_sync": True,
        "broker": links.related("brokers", BROKER_ID),
    }
    replica = links.resource("KafkaReplica", (*path, BROKER_ID), body)
    return JSONResponse(links.listed("KafkaReplicaList", path, [replica]))


@router.get(f"{_BROKERS}/{{b}}/log-dirs", summary="Bytes and files of the partitions", response_model=LogDirList)
async def log_dirs(
    request: Request,
    c: str,
    b: str,
    topic: Annotated[str | None, Query(description="Only this topic")] = None,
    internal: Annotated[bool, Query(description="Internal topics as well")] = False,
    page_size: Annotated[int, Query(ge=1, le=PAGE, description="Partitions of a page")] = PAGE,
    page_token: Annotated[str | None, Query(description="From `metadata.next`")] = None,
) -> JSONResponse:
    """Pages of `page_size` partitions by topic and number: each is opened, which reads its log the first time."""
    service, links = links_of(request, c)
    _check_broker(b)
    metas = [service.log.topic(topic)] if topic is not None else service.log.topics(internal=internal)
    start = _after(page_token)
    wanted = [(meta, number) for meta in metas for number in range(meta.partitions) if (meta.name, number) > start]
    found = [await _dir(service, links, meta, number) for meta, number in wanted[:page_size]]
    path = ("brokers", BROKER_ID, "log-dirs")
    listed = links.listed("SluiceLogDirList", path, found)
    if len(wanted) > page_size:
        last_meta, last = wanted[page_size - 1]
        chosen = {"topic": topic, "internal": "true" if internal else None, "page_size": page_size}
        query = "&".join(f"{name}={value}" for name, value in chosen.items() if value is not None)
        listed["metadata"]["next"] = f"{links.url(*path)}?{query}&page_token={last_meta.name}:{last}"
    return JSONResponse(listed)


def _after(token: str | None) -> tuple[str, int]:
    if token is None:
        return ("", -1)
    name, _, number = token.rpartition(":")
    if not (name and number.isascii() and number.isdecimal() and len(number) <= 10):
        raise InvalidRequest("page_token: must be one that metadata.next gave", field="page_token")
    return name, int(number)


async def _dir(service: Service, links: Links, meta: TopicMeta, number: int) -> Json:
    body: Json = {"topic_name": meta.name, "partition_id": number, "root": service.log.runtime.store.url}
    try:
        body |= _facts(await led_partition(service, meta.name, number))
    except SluiceError as error:
        body["problem"] = error.message  # one that cannot be opened must not hide the others
    return links.resource("SluiceLogDir", ("brokers", BROKER_ID, "log-dirs", f"{meta.name}-{number}"), body)


def _facts(led: PartitionLog) -> Json:
    files, count, log_start, high_watermark = led.view()
    live = files[:count]
    small = sum(file.size < SMALL_BYTES for file in live)
    return {
        "folder": led.ref.folder,
        "size_bytes": sum(file.size for file in live),
        "files": len(live),
        "small_files": small,
        "merged_files": len(live) - small,
        "log_start_offset": log_start,
        "high_watermark": high_watermark,
        "log_end_offset": led.log_end,
        "version": led.state.version,
        "problem": None if led.problem is None else led.problem.message,
    }
