"""Topic configs: effective at once, without a restart."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sluice.api.auth import sees_topic
from sluice.api.errors import NotFound
from sluice.api.models import AlterConfigs, UpdateConfig
from sluice.api.resource_models import TopicConfigList, TopicConfigResource
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service
from sluice.api.topics import V3, links_of
from sluice.log_store.topic import CONFIG_KEYS, AlterOp, ConfigChange, alter

router = APIRouter(tags=["configs"], route_class=LimitedRoute)
_CONFIGS = f"{V3}/{{c}}/topics/{{t}}/configs"


def _check_name(name: str) -> None:
    if name not in CONFIG_KEYS:
        raise NotFound(f"there is no topic config {name[:80]!r}", field="name")


@router.get(_CONFIGS, summary="Configs of a topic", response_model=TopicConfigList)
async def list_configs(request: Request, c: str, t: str) -> JSONResponse:
    service, links = links_of(request, c)
    metas = service.log.topics() if t == "-" else [service.log.topic(t)]
    seen = [meta for meta in metas if sees_topic(request, meta.name)]
    found = [links.config(meta, entry) for meta in seen for entry in meta.config().describe()]
    return JSONResponse(links.listed("KafkaTopicConfigList", ("topics", t, "configs"), found))


@router.get(f"{_CONFIGS}/{{name}}", summary="One config of a topic", response_model=TopicConfigResource)
async def get_config(request: Request, c: str, t: str, name: str) -> JSONResponse:
    service, links = links_of(request, c)
    meta = service.log.topic(t)
    _check_name(name)
    return JSONResponse(next(links.config(meta, entry) for entry in meta.config().describe() if entry.name == name))


@router.put(f"{_CONFIGS}/{{name}}", summary="Set a config", status_code=204, response_class=Response)
async def put_config(request: Request, c: str, t: str, name: str, body: UpdateConfig) -> Response:
    service, _ = links_of(request, c)
    return await _alter(service, t, [ConfigChange(name, body.value)])


@router.delete(f"{_CONFIGS}/{{name}}", summary="Back to the default", status_code=204, response_class=Response)
async def delete_config(request: Request, c: str, t: str, name: str) -> Response:
    service, _ = links_of(request, c)
    service.log.topic(t)
    _check_name(name)
    return await _alter(service, t, [ConfigChange(name, op=AlterOp.DELETE)])


@router.post(f"{_CONFIGS}:alter", summary="Change several configs", status_code=204, response_class=Response)
async def alter_configs(request: Request, c: str, t: str, body: AlterConfigs) -> Response:
    service, _ = links_of(request, c)
    changes = [ConfigChange(change.name, change.value, AlterOp(change.operation)) for change in body.data]
    if body.validate_only:
        alter(service.log.topic(t).configs, changes)
        return Response(status_code=204)
    return await _alter(service, t, changes)


async def _alter(service: Service, topic: str, changes: list[ConfigChange]) -> Response:
    await service.blocking(lambda: service.log.alter_topic(topic, changes))
    return Response(status_code=204)
