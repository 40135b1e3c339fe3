"""v3 calls about consumer groups: lists, members, lag, deletion. Lag is read from files, so in a thread."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sluice.api.auth import principal_of, sees_topic
from sluice.api.groups_requests import Later, all_ready, granted, in_time, ready
from sluice.api.groups_resources import GroupLinks, partitions_of
from sluice.api.models import Resource as ResourceModel
from sluice.api.models import ResourceList
from sluice.api.resources import Links
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service, service_of
from sluice.log_store.errors import UnknownMemberId, UnknownTopicOrPartition
from sluice.log_store.tokens_grants import Resource
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import GroupView, Waiter
from sluice.streaming.coordinator.lag import PartitionLag, summary
from sluice.streaming.groups import Response as Answer
from sluice.streaming.groups.state import Member

router = APIRouter(tags=["consumer groups"], route_class=LimitedRoute)
_ALL = "/v3/clusters/{c}/consumer-groups"
_GROUP = f"{_ALL}/{{g}}"
_CONSUMER = f"{_GROUP}/consumers/{{m}}"


async def _found(request: Request, c: str, g: str) -> tuple[Service, GroupLinks, GroupView]:
    service = service_of(request)
    links = Links(request, service.check_cluster(c))
    await ready(service, g)
    return service, GroupLinks(links, g), service.groups.get(g)


@router.get(_ALL, summary="List consumer groups", response_model=ResourceList)
async def list_groups(request: Request, c: str) -> JSONResponse:
    service = service_of(request)
    links = Links(request, service.check_cluster(c))
    await all_ready(service)
    grants = principal_of(request).grants
    rows = [
        GroupLinks(links, view.group.group_id).group(view)
        for view in service.groups.views()
        if grants.allow(None, Resource.GROUP, view.group.group_id)
    ]
    return JSONResponse(links.listed("KafkaConsumerGroupList", ("consumer-groups",), rows))


@router.get(_GROUP, summary="Describe a consumer group", response_model=ResourceModel)
async def get_group(request: Request, c: str, g: str) -> JSONResponse:
    _, links, view = await _found(request, c, g)
    return JSONResponse(links.group(view))


@router.delete(_GROUP, summary="Delete a group and its offsets", status_code=204, response_class=Response)
async def delete_group(request: Request, c: str, g: str) -> Response:
    service, _, _ = await _found(request, c, g)
    await ready(service, g, write=True)
    later: Later[Answer] = Later(service)
    service.groups.delete(g, Waiter(later.set))
    answer = await in_time(service, later)
    granted(answer)
    return Response(status_code=204)


# --- members -------------------------------------------------------------------------------------


def _member(view: GroupView, member_id: str) -> Member:
    member = view.group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"{member_id[:250]!r} is not a member of group {view.group.group_id!r}")
    return member


@router.get(f"{_GROUP}/consumers", summary="Members of a group", response_model=ResourceList)
async def list_consumers(request: Request, c: str, g: str) -> JSONResponse:
    _, links, view = await _found(request, c, g)
    rows = [links.consumer(member) for member in view.group.members.values()]
    return JSONResponse(links.listed("KafkaConsumerList", ("consumers",), rows))


@router.get(_CONSUMER, summary="One member", response_model=ResourceModel)
async def get_consumer(request: Request, c: str, g: str, m: str) -> JSONResponse:
    _, links, view = await _found(request, c, g)
    return JSONResponse(links.consumer(_member(view, m)))


@router.get(f"{_CONSUMER}/assignments", summary="What a member reads", response_model=ResourceList)
async def list_assignments(request: Request, c: str, g: str, m: str) -> JSONResponse:
    _, links, view = await _found(request, c, g)
    member = _member(view, m)
    rows = [links.assignment(member, where) for where in partitions_of(member)]
    return JSONResponse(links.listed("KafkaConsumerAssignmentList", ("consumers", m, "assignments"), rows))


# --- lag -----------------------------------------------------------------------------------------


async def _lags(request: Request, service: Service, view: GroupView) -> list[PartitionLag]:
    """Of the topics that may be seen."""
    found = await service.reading(lambda: service.lags.lags(view))
    return [lag for lag in found if sees_topic(request, lag.where.topic)]


@router.get(f"{_GROUP}/lags", summary="Lag of a group by partition", response_model=ResourceList)
async def list_lags(request: Request, c: str, g: str) -> JSONResponse:
    service, links, view = await _found(request, c, g)
    rows = [links.lag(lag) for lag in await _lags(request, service, view)]
    return JSONResponse(links.listed("KafkaConsumerLagList", ("lags",), rows))


@router.get(f"{_GROUP}/lags/{{t}}/partitions/{{p}}", summary="Lag in one partition", response_model=ResourceModel)
async def get_lag(request: Request, c: str, g: str, t: str, p: int) -> JSONResponse:
    service, links, view = await _found(request, c, g)
    where = TopicPartition(t, p)
    wanted = view._replace(offsets={one: at for one, at in view.offsets.items() if one == where})
    found = await _lags(request, service, wanted)
    if not found:
        raise UnknownTopicOrPartition(f"group {g!r} has committed nothing for {t[:250]!r} partition {p}", topic=t)
    return JSONResponse(links.lag(found[0]))


@router.get(f"{_GROUP}/lag-summary", summary="Lag of a group, all in all", response_model=ResourceModel)
async def get_lag_summary(request: Request, c: str, g: str) -> JSONResponse:
    service, links, view = await _found(request, c, g)
    return JSONResponse(links.lag_summary(summary(await _lags(request, service, view))))
