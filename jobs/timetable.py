"""Which job is due when: pure. Missed times count once, and a job that is late is not run twice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import JobSettings
from sluice.jobs.cron import NAMED, Cron, parse_cron

CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Entry:
    job: str
    cron: Cron
    arguments: tuple[str, ...]
    """Options of the job that followed the schedule."""
    due_ms: int = 0
    """With the jitter of this occurrence."""

    def after(self, now_ms: int, jitter_ms: int, random: Callable[[], float]) -> Entry:
        """The occurrence after now. `random`: between 0 and 1."""
        moment = datetime.fromtimestamp(now_ms / 1000, UTC)
        next_ms = int(self.cron.next_after(moment).timestamp() * 1000)
        return replace(self, due_ms=next_ms + int(jitter_ms * random()))


def schedules(settings: JobSettings, origins: Mapping[str, str]) -> list[Entry]:
    """ConfigurationError, with key and rule, for a schedule that cannot be."""
    found = []
    for attribute in JobSettings.__dataclass_fields__:
        if not attribute.startswith("schedule_") or attribute == "schedule_jitter_ms":
            continue
        text = getattr(settings, attribute)
        job = attribute.removeprefix("schedule_").replace("_", "-")
        if text:
            found.append(_entry(job, text, origins))
    return found


def _entry(job: str, text: str, origins: Mapping[str, str]) -> Entry:
    key = f"jobs.schedule.{job.replace('-', '.')}"
    words = text.split()
    fields = 1 if words[0].lower() in NAMED else CRON_FIELDS
    try:
        cron = parse_cron(" ".join(words[:fields]))
        arguments = shlex.split(" ".join(words[fields:]))
    except ValueError as error:
        raise ConfigurationError(key=key, value=text, origin=origins.get(key, "default"), rule=str(error)) from error
    return Entry(job, cron, tuple(arguments))
