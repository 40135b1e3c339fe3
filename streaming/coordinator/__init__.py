"""The consumer group coordinator: the group machine over the topic `__consumer_offsets`."""

from sluice.streaming.coordinator.context import Waiter
from sluice.streaming.coordinator.coordinator import Coordinator
from sluice.streaming.coordinator.entry import GroupView
from sluice.streaming.coordinator.records import Committed

__all__ = ["Committed", "Coordinator", "GroupView", "Waiter"]
