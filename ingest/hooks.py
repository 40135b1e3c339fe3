"""Code of the deployer on the path of a record: interceptors, then the serializer, then the partitioner.

Topic configs name them: `interceptor.classes` (a list, in order), `serializer.class`, `partitioner.class`, each as a
dotted name `package.module.Class`. Only names that the operator listed in the setting `ingest.hooks.allowed` are
ever imported, so that the right to alter a topic is not the right to run code. A class is made once, without
arguments, and shared by all requests and threads. Hooks work on whole columns::

    class StampRegion:
        def intercept(self, topic, batch):
            values = pc.binary_join_element_wise(batch.column("value"), b"eu", b"|")
            return batch.set_column(2, "value", values)

    class Zlib:
        def serialize(self, topic, batch):
            packed = [None if v is None else zlib.compress(v) for v in batch.column("value").to_pylist()]
            return batch.set_column(2, "value", pa.array(packed, pa.binary()))

    class AllToTheFirst:
        def assign(self, topic, batch, explicit, n, start):
            return np.zeros(batch.num_rows, np.int32)

A hook refuses a request by raising one of `log_store.errors`. With no hooks the chain is `NO_HOOKS`, whose only work
is the built-in partitioner.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sluice.ingest import partitioner
from sluice.ingest.request import Decoded, Int32s
from sluice.log_store.errors import InvalidConfig, SluiceError
from sluice.log_store.records import RECORD_SCHEMA
from sluice.log_store.topic import TopicConfig


class Interceptor(Protocol):
    def intercept(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records to go on with: as many, in the same order, of the same schema."""


class Serializer(Protocol):
    def serialize(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records as they are to be stored: as many, in the same order, of the same schema."""


class Partitioner(Protocol):
    def assign(self, topic: str, batch: pa.RecordBatch, explicit: Int32s | None, n: int, start: int) -> Int32s:
        """The partition of each record, from 0 to n - 1. A repeat of an idempotent request must give the same."""


class HookFailed(SluiceError):
    """A hook broke its contract or raised something else than a Sluice error: the deployer's to repair."""


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    hook: Any


@dataclass(frozen=True, slots=True)
class HookChain:
    interceptors: tuple[Named, ...] = ()
    serializer: Named | None = None
    partitioner: Named | None = None

    def transform(self, topic: str, decoded: Decoded) -> Decoded:
        """Interceptors and serializer."""
        if not self.interceptors and self.serializer is None:
            return decoded
        batch, rows = decoded.batch, decoded.count
        for named in self.interceptors:
            batch = _checked(named, _called(named, named.hook.intercept, topic, batch), rows)
        if self.serializer is not None:
            batch = _checked(
                self.serializer, _called(self.serializer, self.serializer.hook.serialize, topic, batch), rows
            )
        return Decoded(batch, decoded.explicit_partitions)

    def assign(self, topic: str, decoded: Decoded, n: int, start: int) -> Int32s:
        """The partition of each record."""
        named = self.partitioner
        if named is None:
            return partitioner.assign(decoded.batch, decoded.explicit_partitions, n, start)
        wishes = decoded.explicit_partitions
        placed = np.asarray(_called(named, named.hook.assign, topic, decoded.batch, wishes, n, start))
        if placed.shape != (decoded.count,) or placed.dtype.kind not in "iu":
            raise HookFailed(f"{named.name}: must give one whole number per record", hook=named.name)
        if len(placed) and not 0 <= int(placed.min()) <= int(placed.max()) < n:
            raise HookFailed(f"{named.name}: partitions must be from 0 to {n - 1}", hook=named.name)
        return placed.astype(np.int32, copy=False)


NO_HOOKS = HookChain()


def _called(named: Named, method: Callable[..., object], *arguments: object) -> object:
    try:
        return method(*arguments)
    except SluiceError:
        raise
    except Exception as error:  # foreign code: whatever it raises must not look like ours
        raise HookFailed(f"{named.name}: {type(error).__name__}: {str(error)[:200]}", hook=named.name) from error


def _checked(named: Named, batch: object, rows: int) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch) or batch.num_rows != rows:
        raise HookFailed(f"{named.name}: must return a record batch of {rows} records", hook=named.name)
    if not batch.schema.equals(RECORD_SCHEMA):
        # set_column makes fields nullable again; the types must be ours all the same.
        try:
            return pa.RecordBatch.from_arrays(
                [
                    batch.column(name).cast(kind)
                    for name, kind in zip(RECORD_SCHEMA.names, RECORD_SCHEMA.types, strict=True)
                ],
                schema=RECORD_SCHEMA,
            )
        except (pa.ArrowException, KeyError) as error:
            raise HookFailed(f"{named.name}: must keep the schema: {str(error)[:200]}", hook=named.name) from None
    return batch


class HookLoader:
    """Finds the chain of a topic. Classes and chains are made once and kept."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(allowed)
        self._hooks: dict[tuple[str, str], Named] = {}
        self._chains: dict[tuple[tuple[str, ...], str, str], HookChain] = {((), "", ""): NO_HOOKS}

    @classmethod
    def from_setting(cls, text: str) -> HookLoader:
        """From the comma-separated list `ingest.hooks.allowed`."""
        return cls(name.strip() for name in text.split(",") if name.strip())

    def chain(self, config: TopicConfig) -> HookChain:
        wanted = (config.interceptor_classes, config.serializer_class, config.partitioner_class)
        found = self._chains.get(wanted)
        if found is None:
            interceptors, serializer, placing = wanted
            found = self._chains[wanted] = HookChain(
                tuple(self._load(name, "interceptor.classes", "intercept") for name in interceptors),
                self._load(serializer, "serializer.class", "serialize") if serializer else None,
                self._load(placing, "partitioner.class", "assign") if placing else None,
            )
        return found

    def _load(self, name: str, config: str, method: str) -> Named:
        if name not in self._allowed:
            raise _refused(config, name, "listed in the server's ingest.hooks.allowed")
        key = (name, method)
        if key not in self._hooks:
            module, _, attribute = name.rpartition(".")
            try:
                hook = getattr(importlib.import_module(module), attribute)()
            except Exception as error:
                raise _refused(config, name, f"importable: {type(error).__name__}: {str(error)[:200]}") from error
            if not callable(getattr(hook, method, None)):
                raise _refused(config, name, f"a class with a method {method}")
            self._hooks[key] = Named(name, hook)
        return self._hooks[key]


def _refused(config: str, name: str, rule: str) -> InvalidConfig:
    return InvalidConfig(f"{config} = {name!r}: must be {rule}", name=config, value=name, rule=rule)
