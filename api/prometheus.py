"""Prometheus' text format, version 0.0.4: families of samples, with their labels escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sluice.log_store.figures import BOUNDS_S, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, object]
NONE: Labels = {}


def family(name: str, kind: str, doc: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield from _head(name, kind, doc)
    for labels, value in samples:
        yield f"{name}{_labels(labels)} {value}"


def single(name: str, kind: str, doc: str, value: float) -> Iterator[str]:
    return family(name, kind, doc, [(NONE, value)])


def histograms(name: str, doc: str, samples: Iterable[tuple[Labels, Histogram]]) -> Iterator[str]:
    yield from _head(name, "histogram", doc)
    for labels, histogram in samples:
        total = 0
        for bound, count in zip((*BOUNDS_S, "+Inf"), histogram.buckets, strict=True):
            total += count
            yield f"{name}_bucket{_labels({**labels, 'le': bound})} {total}"
        yield f"{name}_sum{_labels(labels)} {histogram.sum:.6f}"
        yield f"{name}_count{_labels(labels)} {total}"


def _head(name: str, kind: str, doc: str) -> Iterator[str]:
    yield f"# HELP {name} {doc}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
