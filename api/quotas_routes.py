"""Quotas of the cluster: described and altered as Kafka's admin client does, effective at once, kept in the catalog."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import JSONResponse

from sluice.api.models import Body
from sluice.api.resource_models import QuotaList
from sluice.api.resources import Json, Links
from sluice.api.routing import LimitedRoute
from sluice.api.topics import V3, links_of
from sluice.log_store.catalog_quotas import DEFAULT, PARTS, QuotaEntity, Values

router = APIRouter(tags=["quotas"], route_class=LimitedRoute)
_QUOTAS = f"{V3}/{{c}}/quotas"
Filter = Annotated[str | None, Query(description="Only entities with this name; empty: with the default")]


class QuotaEntry(Body):
    entity: dict[str, str | None] = Field(
        description="user, client_id, both, or topic. null: everybody without an entity of their own",
        examples=[{"client_id": "loader"}],
    )
    values: dict[str, float | int | None] = Field(
        description="producer_byte_rate, consumer_byte_rate, controller_mutation_rate, each per second. null removes",
        examples=[{"producer_byte_rate": 1_048_576}],
    )


class AlterQuotas(Body):
    entries: list[QuotaEntry] = Field(min_length=1, max_length=1000, fail_fast=True)
    validate_only: bool = False


@router.get(_QUOTAS, summary="Quotas by user, client id and topic", response_model=QuotaList)
async def list_quotas(
    request: Request, c: str, user: Filter = None, client_id: Filter = None, topic: Filter = None
) -> JSONResponse:
    service, links = links_of(request, c)
    wanted = {
        part: name or DEFAULT for part, name in zip(PARTS, (user, client_id, topic), strict=True) if name is not None
    }
    found = {
        entity: values
        for entity, values in service.log.catalog.state.quotas.entities.items()
        if all(getattr(entity, part) == name for part, name in wanted.items())
    }
    return JSONResponse(_listed(links, found))


@router.post(_QUOTAS, summary="Set or remove quotas", response_model=QuotaList)
async def alter_quotas(request: Request, c: str, body: AlterQuotas) -> JSONResponse:
    """All entries or none. Answers the entities that were named, as they are now."""
    service, links = links_of(request, c)
    changes = [(QuotaEntity.parse(entry.entity), entry.values) for entry in body.entries]
    if body.validate_only:
        after = service.log.catalog.state.quotas.alter(changes).result
    else:
        after = await service.blocking(lambda: service.log.catalog.change(lambda state: state.quotas.alter(changes)))
    return JSONResponse(_listed(links, after))


def _listed(links: Links, entities: dict[QuotaEntity, Values]) -> Json:
    def place(entity: QuotaEntity) -> tuple[str, ...]:
        return tuple(getattr(entity, part) or "" for part in PARTS)

    found = [
        links.resource("SluiceQuota", ("quotas",), {"entity": entity.told(), "values": dict(entities[entity])})
        for entity in sorted(entities, key=place)
    ]
    return links.listed("SluiceQuotaList", ("quotas",), found)
