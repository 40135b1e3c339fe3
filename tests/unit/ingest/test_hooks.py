from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest

from sluice.ingest.hooks import NO_HOOKS, HookFailed, HookLoader
from sluice.ingest.request import Decoded
from sluice.log_store.errors import InvalidConfig, InvalidRecord, PolicyViolation, SluiceError
from sluice.log_store.records import make_batch
from sluice.log_store.topic import TopicConfig
from tests.support.bodies import NOW_MS, same

HERE = __name__
made: list[str] = []


class Suffix:
    text = b"!"

    def __init__(self) -> None:
        made.append(type(self).__name__)

    def _changed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(2, "value", pa.array([v + self.text for v in batch.column(2).to_pylist()], pa.binary()))

    def intercept(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._changed(batch)


class Question(Suffix):
    text = b"?"


class Store(Suffix):
    text = b"#"

    def serialize(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._changed(batch)


class Last:
    def assign(self, topic: str, batch: pa.RecordBatch, explicit: object, n: int, start: int) -> object:
        return [n - 1] * batch.num_rows


class Wrong:
    """Does what its class attribute says."""

    does: object = None

    def intercept(self, topic: str, batch: pa.RecordBatch) -> object:
        if isinstance(self.does, Exception):
            raise self.does
        return self.does

    def assign(self, topic: str, batch: pa.RecordBatch, explicit: object, n: int, start: int) -> object:
        return self.does


class NeedsArguments:
    def __init__(self, path: str) -> None: ...


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hooks_of_a_deployer", sys.modules[HERE])
    made.clear()


def names(*classes: str) -> str:
    return ",".join(f"hooks_of_a_deployer.{name}" for name in classes)


def loader(*classes: str) -> HookLoader:
    return HookLoader.from_setting(" " + names(*classes).replace(",", " , ") + ",")


def config(**hooks: str) -> TopicConfig:
    return TopicConfig.parse({name.replace("_", "."): value for name, value in hooks.items()})


def request() -> Decoded:
    return Decoded(make_batch([{"key": b"21", "value": b"a"}, {"value": b"b"}], default_ms=NOW_MS), None)


def test_without_hooks_nothing_happens() -> None:
    chain = HookLoader(()).chain(TopicConfig())
    assert chain is NO_HOOKS
    decoded = request()
    assert chain.transform("t", decoded) is decoded
    assert chain.assign("t", decoded, 4, 3).tolist() == [(-973932308 & 0x7FFFFFFF) % 4, 3]


def test_interceptors_in_order_then_the_serializer() -> None:
    hooks = loader("Suffix", "Question", "Store", "Last")
    wanted = config(
        interceptor_classes=names("Question", "Suffix"),
        serializer_class=names("Store"),
        partitioner_class=names("Last"),
    )
    chain = hooks.chain(wanted)
    changed = chain.transform("t", request())
    assert same(changed.batch, [{"key": b"21", "value": b"a?!#"}, {"value": b"b?!#"}])
    placed = chain.assign("t", changed, 4, 0)
    assert placed.tolist() == [3, 3]
    assert placed.dtype == np.int32


def test_classes_are_made_once() -> None:
    hooks = loader("Suffix", "Store")
    first = hooks.chain(config(interceptor_classes=names("Suffix")))
    assert hooks.chain(config(interceptor_classes=names("Suffix"), retention_ms="5")) is first
    hooks.chain(config(interceptor_classes=names("Suffix"), serializer_class=names("Store")))
    assert made == ["Suffix", "Store"]


def test_only_listed_names_are_imported() -> None:
    for name in ("os.system", names("Suffix"), "antigravity.x", "sluice.ingest.hooks.HookLoader"):
        with pytest.raises(InvalidConfig, match=r"must be listed in the server's ingest.hooks.allowed"):
            loader("Store").chain(config(serializer_class=name))
    assert "antigravity" not in sys.modules
    assert made == []


@pytest.mark.parametrize("name", ["Missing", "NeedsArguments", "Last"])
def test_a_class_that_does_not_fit_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"serializer.class = '.*{name}': must be") as caught:
        loader(name).chain(config(serializer_class=names(name)))
    assert caught.value.fields["name"] == "serializer.class"
    with pytest.raises(InvalidConfig, match="importable"):
        HookLoader(["no.such.module.X"]).chain(config(partitioner_class="no.such.module.X"))


@pytest.mark.parametrize(
    "does", [None, 7, request().batch.slice(1), pa.record_batch({"value": ["a", "b"]}), ValueError("oh"), KeyError("k")]
)
def test_a_hook_that_breaks_its_contract_is_named(monkeypatch: pytest.MonkeyPatch, does: object) -> None:
    monkeypatch.setattr(Wrong, "does", does)
    with pytest.raises(HookFailed, match=r"hooks_of_a_deployer\.Wrong: "):
        loader("Wrong").chain(config(interceptor_classes=names("Wrong"))).transform("t", request())


@pytest.mark.parametrize("error", [PolicyViolation("no"), InvalidRecord("no")])
def test_a_hook_may_refuse_with_our_errors(monkeypatch: pytest.MonkeyPatch, error: SluiceError) -> None:
    monkeypatch.setattr(Wrong, "does", error)
    with pytest.raises(type(error)) as caught:
        loader("Wrong").chain(config(interceptor_classes=names("Wrong"))).transform("t", request())
    assert caught.value is error


@pytest.mark.parametrize("does", [None, [0], [0, 4], [-1, 0], [0.5, 1.0], [[0, 1]], "ab"])
def test_a_partitioner_must_place_every_record(monkeypatch: pytest.MonkeyPatch, does: object) -> None:
    monkeypatch.setattr(Wrong, "does", does)
    with pytest.raises(HookFailed):
        loader("Wrong").chain(config(partitioner_class=names("Wrong"))).assign("t", request(), 4, 0)
