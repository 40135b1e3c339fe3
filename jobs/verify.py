"""Verify: read everything and check every rule of docs/protocol.md that storage can show. Changes nothing.

    sluice jobs run verify [--root ROOT] [--topic PATTERN] [--partition N] [--quick] [--in-process] [--json]
    spark-submit jobs/verify.py …

Works on a stopped root and under a running service. Exit code 0: every rule holds; 1: violations, each named with
its rule, topic, partition, offset, version and file.
"""

from __future__ import annotations

import argparse

from sluice.jobs.cluster import StoredCluster
from sluice.jobs.framework import FAILED, BaseJob, JobContext
from sluice.jobs.verify_run import Scope, Verdict, Verification, chosen_partitions
from sluice.jobs.verify_workers import LocalWorkers, Workers
from sluice.jobs.work import Intent, Line, Report, Step
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.inspection import stored_catalog

NAMED_IN_ERROR = 3


class Verify(BaseJob):
    name = "verify"
    summary = "Check everything that is stored against the numbered rules of docs/protocol.md; changes nothing."
    reads_only = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--quick", action="store_true", help="logs and listings only: no data file is opened")
        parser.add_argument(
            "--in-process", action="store_true", help="without Spark: files are read by this process, one machine"
        )
        parser.add_argument("--no-notices", action="store_true", help="leave out what is only worth knowing")

    def plan(self, context: JobContext) -> Intent:
        problems: list[str] = []
        catalog = stored_catalog(context.cluster.store, problems)
        refs = chosen_partitions(catalog, _scope(context.options), whole=not problems)
        how = "its log and listing" if context.options.quick else "its log, every file and every row"
        lines = [
            Line(topic=ref.topic, partition=ref.partition, subject=ref.folder, action="verify", reason=how)
            for ref in refs
        ]
        return Intent([Step((line,)) for line in lines], problems)

    def act(self, context: JobContext, _intent: Intent) -> None:
        def done(partitions: int) -> None:
            context.progress.advance(partitions)
            context.check()

        verification = Verification(context.cluster.store, _workers(context), _scope(context.options), done)
        fill_report(context.report, verification.run(), notices=not context.options.no_notices)


def _scope(options: argparse.Namespace) -> Scope:
    return Scope(options.topic, options.partition, options.quick)


def _workers(context: JobContext) -> Workers:
    if context.options.in_process or context.options.quick:
        return LocalWorkers(context.cluster.store)
    if context.cluster.store.delta_uri is None:
        raise InvalidRequest("executors cannot reach a memory:// root: use --in-process", field="root")
    from sluice.jobs.verify_spark import SparkWorkers  # Spark is not needed in-process

    return SparkWorkers(context.spark(), context.cluster.store_spec)


def verify_in_process(cluster: StoredCluster, scope: Scope | None = None) -> Verdict:
    """For those who have just written a root, such as a restore."""
    return Verification(cluster.store, LocalWorkers(cluster.store), scope or Scope()).run()


def fill_report(report: Report, verdict: Verdict, *, notices: bool = True) -> None:
    shown = [*verdict.violations, *(verdict.notices if notices else ())]
    report.rows = [finding.to_json() for finding in shown]
    report.done = verdict.partitions
    report.count(records=verdict.records, bytes=verdict.bytes)
    report.facts |= {
        "files": verdict.files,
        "commits": verdict.commits,
        "violations": len(verdict.violations),
        "notices": len(verdict.notices),
    }
    if violations := verdict.violations:
        report.outcome = FAILED
        named = "; ".join(str(finding) for finding in violations[:NAMED_IN_ERROR])
        more = "" if len(violations) <= NAMED_IN_ERROR else f" and {len(violations) - NAMED_IN_ERROR} more"
        report.error = f"{len(violations)} violations: {named}{more}"


JOB = Verify()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("verify")
