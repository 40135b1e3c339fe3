"""The v2 consumer instances of a service. They live in memory: after a restart their clients make new ones."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from sluice.api.consumers_v2_instance import Instance
from sluice.api.consumers_v2_models import NameTaken, UnknownInstance
from sluice.api.consumers_v2_offsets import InstanceOptions
from sluice.api.service import Service
from sluice.log_store.errors import Overloaded, SluiceError
from sluice.streaming.groups import validate_group_id

MOST = 10_000
"""Instances of one service."""
_Key = tuple[str, str]


class Instances:
    """Belongs to one event loop. One task looks for all that were left alone."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._instances: dict[_Key, Instance] = {}
        self._sweeping: asyncio.Task[None] | None = None
        service.at_stop.insert(0, self.stop)  # before the coordinator: then there is still somebody to leave

    def __len__(self) -> int:
        return len(self._instances)

    def create(self, group_id: str, options: InstanceOptions) -> Instance:
        validate_group_id(group_id)
        key = group_id, options.name
        if key in self._instances:
            raise NameTaken(f"group {group_id!r} has an instance {options.name!r} already", field="name")
        if len(self._instances) >= MOST:
            raise Overloaded(f"there are {MOST} consumer instances already: delete some", retry_after_s=10)
        instance = self._instances[key] = Instance(self._service, group_id, options)
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.ensure_future(self._sweep())
        return instance

    @contextmanager
    def using(self, group_id: str, name: str) -> Iterator[Instance]:
        """The instance; while somebody uses it, it does not grow old."""
        instance = self._find(group_id, name)
        instance.polls += 1
        try:
            yield instance
        finally:
            instance.polls -= 1
            instance.used_at = self._service.log.runtime.clock.boottime()

    async def delete(self, group_id: str, name: str) -> None:
        instance = self._find(group_id, name)
        del self._instances[group_id, name]
        await instance.close()

    def _find(self, group_id: str, name: str) -> Instance:
        try:
            return self._instances[group_id, name]
        except KeyError:
            raise UnknownInstance(
                f"group {group_id[:250]!r} has no consumer instance {name[:250]!r}: make one", field="instance"
            ) from None

    def _age_s(self) -> float:
        return self._service.groups.context.settings.consumer_instance_timeout_ms / 1000

    async def _sweep(self) -> None:
        while self._instances:
            now, age = self._service.log.runtime.clock.boottime(), self._age_s()
            for key, instance in list(self._instances.items()):
                if not instance.polls and now - instance.used_at >= age:
                    del self._instances[key]
                    instance.abandon()
            await asyncio.sleep(min(1.0, age / 4))

    def stop(self) -> None:
        """The service stops: the groups need not wait for sessions to end."""
        for instance in self._instances.values():
            with contextlib.suppress(SluiceError):
                instance.abandon()
        self._instances.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()


_of_service: WeakKeyDictionary[Service, Instances] = WeakKeyDictionary()


def instances_of(service: Service) -> Instances:
    found = _of_service.get(service)
    if found is None:
        found = _of_service[service] = Instances(service)
    return found


def new_name() -> str:
    return f"rest-consumer-{uuid.uuid4()}"
