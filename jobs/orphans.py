"""Orphan sweep: delete data files that no commit names, once `orphan.retention.ms` is over (R-6).

A killed job or service leaves them: files whose commit never came. Until they are that old, their commit may yet come.
"""

from __future__ import annotations

from sluice.jobs.cluster import Swept
from sluice.jobs.vacuum import Vacuum
from sluice.log_store.sweep import SweepChoice


class Orphans(Vacuum):
    name = "orphans"
    summary = "Delete data files that no commit names, after orphan.retention.ms."
    orphans = True
    why = "no commit names it, orphan.retention.ms is over"

    def chosen(self, choice: SweepChoice | Swept) -> tuple[str, ...]:
        return choice.orphans


JOB = Orphans()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("orphans")
