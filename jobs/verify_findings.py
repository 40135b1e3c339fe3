"""What verification found: which rule is broken, where, and in words. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from sluice.log_store.values import PartitionRef


class Severity(StrEnum):
    VIOLATION = "violation"
    """The stored data breaks a numbered rule of docs/protocol.md."""
    NOTICE = "notice"
    """Nothing is wrong, but somebody who looks after the cluster may want to know."""


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    """A number of docs/protocol.md such as `I-1`, or `section 6` where the text has no number."""
    text: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    version: int | None = None
    file: str = ""
    severity: Severity = Severity.VIOLATION

    def to_json(self) -> dict[str, Any]:
        shown = asdict(self)
        shown["severity"] = self.severity.value
        return shown

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        facts = [("version", self.version), ("offset", self.offset), ("file", self.file or None)]
        place = ", ".join([where or "cluster", *(f"{name} {value}" for name, value in facts if value is not None)])
        return f"{self.rule} {place}: {self.text}"


def notice(rule: str, text: str, **where: Any) -> Finding:
    return Finding(rule, text, severity=Severity.NOTICE, **where)


def placed(findings: Iterable[Finding], ref: PartitionRef) -> Iterator[Finding]:
    """The same findings, with the partition they belong to: the pure checks do not know it."""
    for finding in findings:
        yield replace(finding, topic=ref.topic, partition=ref.partition)
