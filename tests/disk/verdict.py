"""Judge a history inside the namespace that can see the tables: `python -m tests.disk.verdict '{…}'`, JSON out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sluice.log_store.engine import LogStore
from tests.support.harness import delta_rows, our_rows, settings_of
from tests.support.history import History, judge


def main(spec: dict[str, Any]) -> dict[str, Any]:
    root = Path(spec["root"])
    history = History.load(Path(spec["history"]))
    tables = {number: delta_rows(root, number) for number in range(spec["partitions"])}
    with LogStore.open(settings_of(str(root), **spec["settings"])) as log:
        differ = [number for number, rows in tables.items() if our_rows(log, number) != rows]
        findings = [str(finding) for finding in log.report.findings]
    verdict = judge(history.acks, tables)
    return {
        "clean": verdict.clean and not differ,
        "text": f"{verdict}; readers differ on {differ}",
        "acked": verdict.acked,
        "broken": history.of("broken"),
        "findings": findings,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
