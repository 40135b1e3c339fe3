"""What a run did and what it found, as text for people and as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.facts import Anomaly, Event

SHOWN = 20
_NOTHING = re.compile(r"0 (bytes|calls|requests)\b|everything was synced|.*nothing was")
"""What a nemesis says that came at a time when there was nothing to break."""


@dataclass(slots=True)
class Round:
    site: str
    seed: int
    seconds: float
    steps: list[str]
    anomalies: list[Anomaly] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)
    waited_s: float = 0.0
    """How long, in peace, the oldest record with acks=1 waited that a take-over was allowed to set aside."""
    looked: Counter[str] = field(default_factory=Counter)
    nemeses: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    """Steps that were taken and broke nothing."""
    jobs: Counter[str] = field(default_factory=Counter)
    """Jobs with their exit codes; what was killed has a negative one."""
    failed: Counter[str] = field(default_factory=Counter)
    """What jobs said that ended with an error."""
    clients: dict[str, Counter[str]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    """What clients did not expect, and starts that were refused, mostly because an offline job leads for a while."""
    done: int = 0
    """Steps of the plan, without idle ones. On a busy machine each takes longer, and the last ones are not reached."""

    def count(self, events: Sequence[Event]) -> None:
        for event in events:
            who, kind = str(event["who"]).partition(".")[0], str(event["is"])
            if kind == "note":
                if event["do"] == "nemesis":
                    did_nothing = _NOTHING.match(str(event.get("told", ""))) is not None
                    self.done += who == "lab" and not did_nothing
                    (self.idle if did_nothing else self.nemeses)[str(event["kind"])] += 1
                elif event["do"] in ("broken", "refused"):
                    self.broken[f"{who}: {str(event.get('error') or event.get('why'))[-160:]}"] += 1
                continue
            name = f"{who} {event['do']}" if who in ("admin", "watch") else who
            self.clients.setdefault(name, Counter())[kind] += 1
            if event["do"] == "job" and kind == "ok":
                self.jobs[f"{event['job']} {event['code']}"] += 1
                if event["code"] > 0:
                    self.failed[f"{event['job']}: {str(event.get('said', ''))[:160]}"] += 1
            if kind in ("fail", "info"):
                self.errors[f"{event['do']}: {str(event['error'])[:60]}"] += 1


@dataclass(slots=True)
class Report:
    seed: int
    seconds: float
    left_out: list[str]
    rounds: list[Round] = field(default_factory=list)

    @property
    def anomalies(self) -> list[Anomaly]:
        return [anomaly for one in self.rounds for anomaly in one.anomalies]

    def text(self) -> str:
        lines = [f"torture: seed {self.seed}, {len(self.rounds)} rounds, {self.seconds:.0f} s"]
        lines += [f"left out: {one}" for one in self.left_out]
        for one in self.rounds:
            done = f"{one.done} of {len(one.steps)} planned steps done in its time"
            lines.append(f"{one.site}, seed {one.seed}: {done}, {one.idle.total()} more found nothing to break")
        lines += ["", "nemesis                 times", *_table(_sum(one.nemeses for one in self.rounds))]
        if idle := _sum(one.idle for one in self.rounds):
            lines += ["", "without effect          times", *_table(idle)]
        lines += ["", "client                  asked      ok refused unknown"]
        clients: dict[str, Counter[str]] = {}
        for one in self.rounds:
            for name, counts in one.clients.items():
                clients[name] = clients.get(name, Counter()) + counts
        for name, counts in sorted(clients.items()):
            numbers = [counts[key] for key in ("invoke", "ok", "fail", "info")]
            lines.append(f"{name:22}" + "".join(f"{number:8}" for number in numbers))
        lines += ["", "job, exit code          times", *_table(_sum(one.jobs for one in self.rounds))]
        lines += ["", "looked at               number", *_table(_sum(one.looked for one in self.rounds))]
        lines += ["", "allowed                 number", *_table(_sum(one.allowed for one in self.rounds))]
        waited_s = max((one.waited_s for one in self.rounds), default=0.0)
        lines.append(f"the oldest that a take-over set aside had waited for {waited_s:.1f} s of peace")
        for title, seen in (
            ("jobs that failed, and what they said", _sum(one.failed for one in self.rounds)),
            ("also seen", _sum(one.broken for one in self.rounds)),
        ):
            if seen:
                lines += ["", title, *(f"  {count} × {what}" for what, count in seen.most_common(SHOWN))]
        lines += ["", *self._verdict()]
        return "\n".join(lines)

    def _verdict(self) -> list[str]:
        if not self.anomalies:
            return ["anomalies: none"]
        kinds = Counter(anomaly.kind for anomaly in self.anomalies)
        lines = [f"ANOMALIES: {len(self.anomalies)}", *_table(kinds)]
        for one in self.rounds:
            lines += [f"  {one.site}, seed {one.seed}: {anomaly}" for anomaly in one.anomalies[:SHOWN]]
        return lines

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=1))

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": round(self.seconds),
            "left_out": self.left_out,
            "anomalies": [str(anomaly) for anomaly in self.anomalies],
            "rounds": [
                {
                    "site": one.site,
                    "seed": one.seed,
                    "seconds": one.seconds,
                    "schedule": one.steps,
                    "steps_done": one.done,
                    "nemeses": one.nemeses,
                    "without_effect": one.idle,
                    "jobs": one.jobs,
                    "jobs_failed": one.failed,
                    "clients": one.clients,
                    "looked_at": one.looked,
                    "allowed": one.allowed,
                    "oldest_set_aside_s": round(one.waited_s, 1),
                    "errors": dict(one.errors.most_common(60)),
                    "unexpected": one.broken,
                    "anomalies": [str(anomaly) for anomaly in one.anomalies],
                }
                for one in self.rounds
            ],
        }


def _sum(counters: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total += counter
    return total


def _table(counts: Mapping[str, int]) -> list[str]:
    return [f"{name:22} {number:7}" for name, number in sorted(counts.items())] or ["-"]
