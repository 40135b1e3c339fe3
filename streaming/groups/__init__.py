"""Consumer groups: the group protocol as a pure function, and the rules around it.

`step` is the machine; `Group` what it knows, `events` what happens to it, `effects` what it wants done.
"""

from sluice.streaming.groups.effects import Effect, GroupDead, Log, Persist, Refusal, Reply, Response
from sluice.streaming.groups.events import Event
from sluice.streaming.groups.ids import partition_of_group, validate_group_id
from sluice.streaming.groups.machine import Step, step
from sluice.streaming.groups.metadata import decode_metadata, encode_metadata
from sluice.streaming.groups.state import Group, GroupMetadata, GroupRules, Now, Phase, new_group, next_deadline
from sluice.streaming.groups.syncing import assignment_task

__all__ = [
    "Effect",
    "Event",
    "Group",
    "GroupDead",
    "GroupMetadata",
    "GroupRules",
    "Log",
    "Now",
    "Persist",
    "Phase",
    "Refusal",
    "Reply",
    "Response",
    "Step",
    "assignment_task",
    "decode_metadata",
    "encode_metadata",
    "new_group",
    "next_deadline",
    "partition_of_group",
    "step",
    "validate_group_id",
]
