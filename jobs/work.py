"""What a job means to do and what it did, as values: printed for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a plan: what happens to one file, segment, group, …, and why."""

    topic: str = ""
    partition: int = -1
    subject: str
    """A file name, a range of offsets, a group."""
    action: str
    reason: str
    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What is done as one thing, usually one plan of one partition. `work` is whatever `act` needs to do it."""

    lines: tuple[Line, ...]
    work: Any = None

    @property
    def bytes(self) -> int:
        return sum(line.bytes for line in self.lines)


@dataclass(frozen=True, slots=True)
class Intent:
    """The plan of a whole run. Making it changes nothing."""

    steps: Sequence[Step] = ()
    notes: Sequence[str] = ()
    """What else there is to say: why a partition is left alone, for instance."""

    @property
    def lines(self) -> list[Line]:
        return [line for step in self.steps for line in step.lines]


DONE, NOTHING, FAILED, STOPPED = "done", "nothing to do", "failed", "stopped"


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run did. It is stored beside the job's lease for `sluice jobs status`."""

    job: str
    run_id: str
    started_ms: int
    outcome: str = DONE
    seconds: float = 0.0
    mode: str = ""
    leader: str = ""
    planned: int = 0
    """Steps of the plan."""
    done: int = 0
    refused: int = 0
    """Plans that came too late because the partition had moved on; each was made anew or left to the next run."""
    records: int = 0
    bytes: int = 0
    files_removed: int = 0
    files_added: int = 0
    bytes_added: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    """What only this job counts."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """A table for people, one row for each partition, group, …; the stored copy is cut."""
    notes: list[str] = field(default_factory=list)
    error: str = ""

    def count(
        self, *, records: int = 0, bytes: int = 0, removed: int = 0, added: int = 0, bytes_added: int = 0
    ) -> None:
        self.records += records
        self.bytes += bytes
        self.files_removed += removed
        self.files_added += added
        self.bytes_added += bytes_added

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def as_rows(lines: Iterable[Line]) -> list[dict[str, Any]]:
    return [
        {
            "topic": line.topic,
            "partition": "" if line.partition < 0 else line.partition,
            "subject": line.subject,
            "action": line.action,
            "records": line.records,
            "bytes": line.bytes,
            "reason": line.reason,
        }
        for line in lines
    ]
