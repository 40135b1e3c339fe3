"""v2 and v3 calls about topics and partitions. Catalog changes wait for a commit, so they run in a thread."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from sluice.api.auth import check_topic, sees_topic
from sluice.api.models import CreateTopic, UpdateTopic
from sluice.api.quotas import admit_mutation
from sluice.api.resource_models import (
    ClusterList,
    ClusterResource,
    PartitionList,
    PartitionResource,
    TopicList,
    TopicResource,
    V2Partition,
    V2Topic,
)
from sluice.api.resources import Json, Links
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service, service_of
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.partition import PartitionLog
from sluice.log_store.tokens_grants import Operation

router = APIRouter(tags=["topics"], route_class=LimitedRoute)
V3 = "/v3/clusters"


def links_of(request: Request, cluster: str) -> tuple[Service, Links]:
    service = service_of(request)
    return service, Links(request, service.check_cluster(cluster))


async def led_partitions(service: Service, meta: TopicMeta) -> list[PartitionLog]:
    """All of a topic, opened."""
    led = [service.log.partition(meta.name, number) for number in range(meta.partitions)]

    def open_all() -> None:
        for partition in led:
            partition.open()

    if not all(partition.opened for partition in led):
        await service.blocking(open_all)
    return led


async def led_partition(service: Service, topic: str, number: int) -> PartitionLog:
    led = service.log.partition(topic, number)
    if not led.opened:
        await service.blocking(led.open)
    return led


# --- v2 ------------------------------------------------------------------------------------------


def _v2_partition(number: int) -> Json:
    return {"partition": number, "leader": 0, "replicas": [{"broker": 0, "leader": True, "in_sync": True}]}


@router.get("/topics", summary="Names of the topics")
async def v2_topics(request: Request) -> list[str]:
    return [meta.name for meta in service_of(request).log.topics() if sees_topic(request, meta.name)]


@router.get("/topics/{t}", summary="A topic, its configs and partitions", response_model=V2Topic)
async def v2_topic(request: Request, t: str) -> dict[str, Any]:
    meta = service_of(request).log.topic(t)
    configs = {entry.name: entry.value for entry in meta.config().describe()}
    return {"name": meta.name, "configs": configs, "partitions": [_v2_partition(p) for p in range(meta.partitions)]}


@router.get("/topics/{t}/partitions", summary="Partitions of a topic", response_model=list[V2Partition])
async def v2_partitions(request: Request, t: str) -> list[dict[str, Any]]:
    return [_v2_partition(number) for number in range(service_of(request).log.topic(t).partitions)]


@router.get("/topics/{t}/partitions/{p}", summary="One partition of a topic", response_model=V2Partition)
async def v2_partition(request: Request, t: str, p: int) -> dict[str, Any]:
    return _v2_partition(service_of(request).log.topic(t).partition(p).partition)


# --- v3 ------------------------------------------------------------------------------------------


@router.get(V3, summary="The cluster, as a list of one", response_model=ClusterList)
async def clusters(request: Request) -> JSONResponse:
    log = service_of(request).log
    links = Links(request, log.cluster_id)
    return JSONResponse(links.listed("KafkaClusterList", (), [links.cluster(log.runtime.store.url)]))


@router.get(f"{V3}/{{c}}", summary="This cluster", response_model=ClusterResource)
async def cluster(request: Request, c: str) -> JSONResponse:
    service, links = links_of(request, c)
    return JSONResponse(links.cluster(service.log.runtime.store.url))


@router.get(f"{V3}/{{c}}/topics", summary="List topics", response_model=TopicList)
async def list_topics(
    request: Request, c: str, internal: Annotated[bool, Query(description="Internal topics as well")] = False
) -> JSONResponse:
    service, links = links_of(request, c)
    metas = service.log.topics(internal=internal)
    found = [links.topic(meta) for meta in metas if sees_topic(request, meta.name)]
    return JSONResponse(links.listed("KafkaTopicList", ("topics",), found))


@router.post(
    f"{V3}/{{c}}/topics",
    summary="Create a topic",
    status_code=201,
    response_model=TopicResource,
    responses={200: {"model": TopicResource, "description": "validate_only: it could be created"}},
)
async def create_topic(request: Request, c: str, body: CreateTopic) -> JSONResponse:
    service, links = links_of(request, c)
    check_topic(request, Operation.ADMIN, body.topic_name)
    if not body.validate_only:
        wanted = body.partitions_count
        admit_mutation(request, service, wanted if wanted > 0 else service.topics.num_partitions)
    meta = await service.blocking(
        lambda: service.log.create_topic(
            body.topic_name,
            partitions=body.partitions_count,
            configs={config.name: config.value for config in body.configs},
            replication_factor=body.replication_factor,
            validate_only=body.validate_only,
        )
    )
    if body.validate_only:
        return JSONResponse(links.topic(meta))
    return JSONResponse(links.topic(meta), 201, {"Location": links.url("topics", meta.name)})


@router.get(f"{V3}/{{c}}/topics/{{t}}", summary="Describe a topic", response_model=TopicResource)
async def get_topic(request: Request, c: str, t: str) -> JSONResponse:
    service, links = links_of(request, c)
    return JSONResponse(links.topic(service.log.topic(t)))


@router.patch(f"{V3}/{{c}}/topics/{{t}}", summary="Add partitions", response_model=TopicResource)
async def grow_topic(request: Request, c: str, t: str, body: UpdateTopic) -> JSONResponse:
    service, links = links_of(request, c)
    admit_mutation(request, service, max(1, body.partitions_count - service.log.topic(t).partitions))
    meta = await service.blocking(lambda: service.log.grow_topic(t, body.partitions_count))
    return JSONResponse(links.topic(meta))


@router.delete(f"{V3}/{{c}}/topics/{{t}}", summary="Delete a topic", status_code=204, response_class=Response)
async def delete_topic(request: Request, c: str, t: str) -> Response:
    service, _ = links_of(request, c)
    admit_mutation(request, service, service.log.topic(t).partitions)
    await service.blocking(lambda: service.log.delete_topic(t))
    return Response(status_code=204)


@router.get(f"{V3}/{{c}}/topics/{{t}}/partitions", summary="Partitions and their offsets", response_model=PartitionList)
async def list_partitions(request: Request, c: str, t: str) -> JSONResponse:
    service, links = links_of(request, c)
    meta = service.log.topic(t)
    found = [links.partition(meta, led) for led in await led_partitions(service, meta)]
    return JSONResponse(links.listed("KafkaPartitionList", ("topics", t, "partitions"), found))


@router.get(f"{V3}/{{c}}/topics/{{t}}/partitions/{{p}}", summary="One partition", response_model=PartitionResource)
async def get_partition(request: Request, c: str, t: str, p: int) -> JSONResponse:
    service, links = links_of(request, c)
    return JSONResponse(links.partition(service.log.topic(t), await led_partition(service, t, p)))
