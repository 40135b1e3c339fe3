"""The list of a batch's parts is one request: as many as are allowed must fit into it."""

from __future__ import annotations

import msgspec

from sluice.api.routing import ADMIN_MAX_BYTES, ADMIN_MAX_VALUES
from sluice.api.sinks_models import CommitSinkBatch
from sluice.log_store.sinks import MAX_PARTS
from sluice.log_store.staging import Part

LONGEST_TOPIC = "t" * 249


def test_as_many_parts_as_are_allowed_fit_into_a_request() -> None:
    """With names as tasks give them, in the longest topic."""
    part = Part(f"00000-0-{'f' * 32}-00000.direct.arrows", LONGEST_TOPIC, 2**31 - 1, 2**40, 2**32 - 1)
    body = msgspec.json.encode({"parts": [part] * MAX_PARTS})
    assert len(body) <= ADMIN_MAX_BYTES
    assert sum(map(body.count, (b",", b"[", b"{"))) <= ADMIN_MAX_VALUES
    assert len(CommitSinkBatch.model_validate_json(body).parts) == MAX_PARTS
