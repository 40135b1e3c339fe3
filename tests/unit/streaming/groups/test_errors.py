"""Refusals of groups as clients see them: Kafka's names and codes, and the HTTP status."""

from __future__ import annotations

import pytest

from sluice.api.errors import body_of, status_of
from sluice.log_store import errors
from sluice.streaming.groups import Refusal


@pytest.mark.parametrize(
    ("error", "name", "code", "retriable", "status"),
    [
        (errors.OffsetMetadataTooLarge, "OFFSET_METADATA_TOO_LARGE", 12, False, (400, 40002)),
        (errors.CoordinatorLoadInProgress, "COORDINATOR_LOAD_IN_PROGRESS", 14, True, (503, 50302)),
        (errors.CoordinatorNotAvailable, "COORDINATOR_NOT_AVAILABLE", 15, True, (503, 50302)),
        (errors.NotCoordinator, "NOT_COORDINATOR", 16, True, (503, 50302)),
        (errors.IllegalGeneration, "ILLEGAL_GENERATION", 22, False, (409, 409)),
        (errors.InconsistentGroupProtocol, "INCONSISTENT_GROUP_PROTOCOL", 23, False, (409, 409)),
        (errors.InvalidGroupId, "INVALID_GROUP_ID", 24, False, (400, 40002)),
        (errors.UnknownMemberId, "UNKNOWN_MEMBER_ID", 25, False, (404, 40403)),
        (errors.InvalidSessionTimeout, "INVALID_SESSION_TIMEOUT", 26, False, (400, 40002)),
        (errors.RebalanceInProgress, "REBALANCE_IN_PROGRESS", 27, False, (409, 409)),
        (errors.NonEmptyGroup, "NON_EMPTY_GROUP", 68, False, (409, 409)),
        (errors.GroupIdNotFound, "GROUP_ID_NOT_FOUND", 69, False, (404, 40405)),
        (errors.MemberIdRequired, "MEMBER_ID_REQUIRED", 79, False, (409, 409)),
        (errors.GroupMaxSizeReached, "GROUP_MAX_SIZE_REACHED", 81, False, (409, 409)),
        (errors.FencedInstanceId, "FENCED_INSTANCE_ID", 82, False, (409, 409)),
        (errors.GroupSubscribedToTopic, "GROUP_SUBSCRIBED_TO_TOPIC", 86, False, (409, 409)),
    ],
)
def test_names_codes_and_statuses(
    error: type[errors.SluiceError], name: str, code: int, retriable: bool, status: tuple[int, int]
):
    assert (error.error, error.code, error.retriable) == (name, code, retriable)
    assert status_of(error("x")) == status


def test_the_member_id_to_join_with_reaches_the_client():
    body = body_of(Refusal(errors.MemberIdRequired, "join again", member_id="m1").exception())
    assert (body.error, body.details) == ("MEMBER_ID_REQUIRED", {"member_id": "m1"})
