"""Settings of scheduled jobs and of the Spark sessions that run them."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.conf.declare import HOUR, SECOND, setting

_CRON = r"|@(hourly|daily|weekly|monthly)(\s.*)?|(\S+\s+){4}\S+(\s.*)?"
_CRON_DOC = "empty, @hourly, @daily, @weekly, @monthly or five cron fields, followed by options of the job"


def _schedule(job: str, default: str, doc: str) -> str:
    """When a job runs; its options may follow: `0 3 * * * --topic orders`."""
    return setting(f"jobs.schedule.{job}", default, doc, pattern=_CRON, pattern_doc=_CRON_DOC)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """`sluice jobs schedule`: when each job runs, in UTC. Empty: never."""

    schedule_retention: str = _schedule("retention", "*/5 * * * *", "Retention; a service also does it by itself.")
    schedule_compaction: str = _schedule("compaction", "*/10 * * * *", "Key compaction of topics whose policy has it.")
    schedule_merge: str = _schedule("merge", "30 2 * * *", "Deep merge of closed segments.")
    schedule_vacuum: str = _schedule(
        "vacuum", "15 * * * *", "Deletion of files that left the log; a service does it by itself."
    )
    schedule_orphans: str = _schedule("orphans", "45 3 * * *", "Deletion of files that no commit names.")
    schedule_offset_expiry: str = _schedule(
        "offset.expiry", "*/30 * * * *", "Expiry of offsets; a service does it by itself."
    )
    schedule_verify: str = _schedule("verify", "", "A look at everything that is stored.")
    schedule_jitter_ms: int = setting(
        "jobs.schedule.jitter.ms",
        15 * SECOND,
        "A run begins up to this much later than scheduled, so that many clusters do not begin at once.",
        minimum=0,
        maximum=HOUR,
    )
    metrics_host: str = setting("jobs.metrics.host", "127.0.0.1", "Address at which the metrics of jobs are served.")
    metrics_port: int = setting(
        "jobs.metrics.port", 0, "Port of the metrics of jobs for Prometheus. 0: none.", minimum=0, maximum=65_535
    )
    metrics_file: str = setting(
        "jobs.metrics.file", "", "File that gets the metrics of jobs after each run. Empty: none."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The Spark sessions that Sluice itself starts."""

    master: str = setting(
        "spark.master", "local[2]", "Spark master URL.", pattern=r"\S+", pattern_doc="a Spark master URL, not empty"
    )
    jars_dir: str = setting(
        "spark.jars.dir",
        "",
        "Folder of Delta's two jars. Empty: $SLUICE_JARS_DIR, else sluice/jars in the user's cache folder.",
    )
    driver_memory: str = setting(
        "spark.driver.memory",
        "2g",
        "Heap of the driver.",
        pattern=r"[1-9][0-9]*[kmgtKMGT]",
        pattern_doc="a whole number followed by k, m, g or t",
    )
    shuffle_partitions: int = setting(
        "spark.shuffle.partitions", 2, "Partitions of a shuffle.", minimum=1, maximum=10_000
    )
