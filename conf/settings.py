"""Every setting of Sluice, in small groups: a component receives its group and nothing else.

Groups can be made directly with their defaults (`LogSettings()`); bounds are checked by `load_settings`,
which only the composition roots call. After a change run `python -m sluice.conf > conf/defaults.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sluice.conf.declare import setting
from sluice.conf.loading import AtLeast, load

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Where the log lives."""

    root: str = setting(
        "storage.root",
        "./sluice-data",
        "Where topics are stored: a folder, file://…, memory:// or an object store such as s3://bucket/prefix.",
        pattern=r"\S.*",
        pattern_doc="a folder or a URL, not empty",
    )
    fsync: bool = setting(
        "fsync",
        True,
        "Sync files of a local root to disk before acknowledging. "
        "false promises only what the page cache does: survives kill -9, not power loss.",
    )
    request_timeout_ms: int = setting(
        "storage.request.timeout.ms",
        30 * SECOND,
        "How long the transfer of one file to or from an object store may take; commits and claims get 5 s at most.",
        minimum=SECOND,
        maximum=10 * MINUTE,
    )
    s3_endpoint: str = setting(
        "s3.endpoint", "", "Address of an S3 server that is not AWS. Empty: AWS_ENDPOINT_URL, else AWS itself."
    )
    s3_region: str = setting("s3.region", "", "Region of the bucket. Empty: AWS_REGION.")
    s3_access_key_id: str = setting(
        "s3.access.key.id", "", "Access key. Empty: AWS_ACCESS_KEY_ID or the instance's role."
    )
    s3_secret_access_key: str = setting(
        "s3.secret.access.key", "", "Secret of the access key. Empty: AWS_SECRET_ACCESS_KEY.", secret=True
    )
    s3_allow_http: bool = setting("s3.allow.http", False, "Allow an s3.endpoint without TLS.")

    @property
    def options(self) -> dict[str, str]:
        """What an object store is told beyond its own environment variables."""
        scheme, separator, _ = self.root.partition("://")
        if not separator or scheme in ("file", "memory"):
            return {}
        timeout = {"timeout": f"{self.request_timeout_ms}ms"}
        if scheme not in ("s3", "s3a"):
            return timeout
        given = timeout | {
            "endpoint": self.s3_endpoint,
            "region": self.s3_region,
            "access_key_id": self.s3_access_key_id,
            "secret_access_key": self.s3_secret_access_key,
            "allow_http": "true" if self.s3_allow_http else "",
        }
        return {key: value for key, value in given.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSettings:
    """The leader's write-ahead log."""

    dir: str = setting(
        "wal.dir", "", "Folder of the write-ahead log. Empty: <storage.root>/_sluice/wal on a local root."
    )
    max_bytes: int = setting(
        "wal.max.bytes", GIB, "Size at which the write-ahead log counts as full.", minimum=16 * MIB
    )
    file_bytes: int = setting(
        "wal.file.bytes",
        32 * MIB,
        "Size of one preallocated write-ahead log file.",
        minimum=MIB,
        maximum=GIB,
    )
    sync_interval_ms: int = setting(
        "wal.sync.interval.ms",
        2 * SECOND,
        "How often committed Delta files are synced in bulk, so that the write-ahead log can be cut.",
        minimum=10,
        maximum=10 * MINUTE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How partitions commit, keep and read."""

    commit_interval_ms: int = setting(
        "commit.interval.ms",
        50,
        "How long a partition gathers batches before it commits them to Delta. 0: at once.",
        minimum=0,
        maximum=MINUTE,
    )
    commit_max_bytes: int = setting(
        "commit.max.bytes",
        64 * MIB,
        "Gathered bytes that trigger a commit before the interval ends.",
        minimum=64 * KIB,
        maximum=GIB,
    )
    commit_threads: int = setting(
        "commit.threads",
        0,
        "Threads that write Parquet files and Delta commits. 0: one per processor, two at least, on a local root: more "
        "would only wait for each other; 16 on an object store, where each waits for the network.",
        minimum=0,
        maximum=64,
    )
    partition_pending_max_bytes: int = setting(
        "partition.pending.max.bytes",
        64 * MIB,
        "Accepted but uncommitted bytes of one partition above which produce is refused.",
        minimum=MIB,
    )
    partition_park_ms: int = setting(
        "partition.park.ms",
        MINUTE,
        "How long a partition may fail to commit before its write-ahead log entries are set aside.",
        minimum=SECOND,
    )
    checkpoint_interval_versions: int = setting(
        "checkpoint.interval.versions", 150, "Delta versions between two checkpoints.", minimum=10, maximum=10_000
    )
    json_retention_ms: int = setting(
        "log.json.retention.ms",
        6 * HOUR,
        "How long Delta commit files are kept once a checkpoint covers them. "
        "A stream that stops for longer cannot resume by version.",
        minimum=HOUR,
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        15 * MINUTE,
        "How long a data file outlives its removal, for readers that still use it.",
        minimum=MINUTE,
    )
    orphan_retention_ms: int = setting(
        "orphan.retention.ms",
        24 * HOUR,
        "Age at which a data file that no commit names is deleted.",
        minimum=HOUR,
    )
    retention_check_interval_ms: int = setting(
        "retention.check.interval.ms",
        5 * MINUTE,
        "How often the service looks for segments that retention takes. 0: never, it is left to the job.",
        minimum=0,
        maximum=24 * HOUR,
    )
    merge_enable: bool = setting(
        "merge.enable", True, "Merge small files into larger ones in the background, up to merge.target.bytes."
    )
    merge_quiet_ms: int = setting(
        "merge.quiet.ms",
        10 * SECOND,
        "How long nothing must be appended to a partition before its tail is merged as well.",
        minimum=100,
    )
    merge_cpu_percent: int = setting(
        "merge.cpu.percent",
        50,
        "Share of one core that merging may use; it rests in between.",
        minimum=1,
        maximum=100,
    )
    compaction_in_process_max_bytes: int = setting(
        "compaction.in.process.max.bytes",
        64 * MIB,
        "Size up to which the service itself compacts a partition by key; larger ones are left to the compaction job. "
        "Internal topics are always compacted here, this much at a time. 0: never, it is left to the job.",
        minimum=0,
        maximum=GIB,
    )
    tail_cache_bytes: int = setting(
        "tail.cache.bytes", 128 * MIB, "Memory for the newest records, all partitions together. 0: none.", minimum=0
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        24 * HOUR,
        "How long an idle producer's duplicate window is remembered.",
        minimum=SECOND,
    )
    read_max_bytes: int = setting(
        "read.max.bytes", 50 * MIB, "Upper limit of the bytes that one read returns.", minimum=KIB, maximum=GIB
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Who this process is, and how it holds the leadership of partitions."""

    node_name: str = setting("node.name", "", "Name of this process in claims. Empty: the host name.")
    advertised_address: str = setting("advertised.address", "", "Address that clients are told to use.")
    claim_renew_ms: int = setting(
        "claim.renew.ms", 3 * SECOND, "How often a leader renews its claim.", minimum=100, maximum=MINUTE
    )
    claim_timeout_ms: int = setting(
        "claim.timeout.ms",
        15 * SECOND,
        "Age at which a claim that was not renewed may be taken over. At least 3 × claim.renew.ms.",
        minimum=SECOND,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What a topic gets when its creator does not say."""

    num_partitions: int = setting("num.partitions", 1, "Partitions of a new topic.", minimum=1, maximum=10_000)
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, "Create a topic at the first produce to it."
    )
    default_acks: str = setting(
        "default.acks",
        "all",
        "Acknowledgement when the request names none: 0 none, 1 in the write-ahead log, all committed to Delta.",
        choices=("0", "1", "all"),
    )
    cluster_max_partitions: int = setting(
        "cluster.max.partitions",
        10_000,
        "Partitions that may exist, all topics together.",
        minimum=1,
        maximum=1_000_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Consumer groups and their committed offsets."""

    min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", 6 * SECOND, "Shortest session that a member may ask for.", minimum=1
    )
    max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", 30 * MINUTE, "Longest session that a member may ask for.", minimum=1
    )
    max_size: int = setting("group.max.size", 5_000, "Members of one group.", minimum=1, maximum=100_000)
    initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        3 * SECOND,
        "How long the first join of an empty group waits for others.",
        minimum=0,
        maximum=10 * MINUTE,
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets. It counts when the topic is created, at the first use of a group.",
        minimum=1,
        maximum=1_000,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        7 * 24 * 60,
        "After how many minutes committed offsets of a group without members are forgotten.",
        minimum=1,
        maximum=2**31 - 1,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        10 * MINUTE,
        "How often expired offsets are looked for.",
        minimum=1,
        maximum=24 * HOUR,
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", 4 * KIB, "Text that may be committed with an offset.", minimum=0, maximum=MIB
    )
    lag_window_ms: int = setting(
        "group.lag.window.ms",
        MINUTE,
        "How long a group that lags may commit nothing before it counts as stopped.",
        minimum=SECOND,
        maximum=24 * HOUR,
    )
    lag_sample_ms: int = setting(
        "group.lag.sample.ms",
        SECOND,
        "Least time between two of the ten samples that the status of a group is judged by.",
        minimum=1,
        maximum=HOUR,
    )
    consumer_instance_timeout_ms: int = setting(
        "consumer.instance.timeout.ms",
        5 * MINUTE,
        "After how long a consumer instance of the v2 API is removed that nobody uses.",
        minimum=100,
        maximum=24 * HOUR,
    )
    metrics_max_partitions: int = setting(
        "group.metrics.max.partitions",
        1_000,
        "Partitions of groups whose lag /metrics shows one by one; totals count all of them.",
        minimum=0,
        maximum=100_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The HTTP service."""

    host: str = setting(
        "server.host",
        "127.0.0.1",
        "Address to listen on. Anything but loopback needs access tokens, or --insecure.",
        pattern=r"\S+",
        pattern_doc="a host name or an address, not empty",
    )
    port: int = setting("server.port", 8080, "Port to listen on. 0: any free one.", minimum=0, maximum=65_535)
    request_max_bytes: int = setting(
        "request.max.bytes",
        64 * MIB,
        "Largest request body, before and after decompression.",
        minimum=KIB,
        maximum=GIB,
    )
    request_max_records: int = setting(
        "request.max.records", 100_000, "Records of one JSON or base64 request.", minimum=1, maximum=10_000_000
    )
    request_memory_max_bytes: int = setting(
        "request.memory.max.bytes",
        512 * MIB,
        "Bodies of all produce requests at work together; above it a request is answered 429.",
        minimum=MIB,
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30 * SECOND,
        "How long a produce request waits for its acknowledgement if it does not say, and for its body to arrive.",
        minimum=1,
        maximum=HOUR,
    )
    fetch_threads: int = setting(
        "fetch.threads", 4, "Threads that read files for fetches, or decode large bodies.", minimum=1, maximum=64
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms", MINUTE, "Upper limit of max_wait_ms, the wait of a long poll.", minimum=0, maximum=HOUR
    )
    fetch_max_waiting: int = setting(
        "fetch.max.waiting",
        20_000,
        "Long polls that may wait at once; further ones are answered 429.",
        minimum=1,
        maximum=1_000_000,
    )
    max_connections: int = setting(
        "max.connections",
        30_000,
        "Connections at once; a request on one more is answered 429, except for health and metrics.",
        minimum=10,
        maximum=1_000_000,
    )
    max_requests: int = setting(
        "max.requests",
        10_000,
        "Requests at work at once, without the long polls that wait; further ones are answered 429.",
        minimum=1,
        maximum=1_000_000,
    )
    header_max_bytes: int = setting(
        "header.max.bytes", 32 * KIB, "Headers of one request, all together.", minimum=KIB, maximum=MIB
    )
    header_max_count: int = setting(
        "header.max.count", 100, "Number of headers of one request.", minimum=10, maximum=10_000
    )
    url_max_bytes: int = setting("url.max.bytes", 8 * KIB, "Path and query of one request.", minimum=256, maximum=MIB)
    header_timeout_ms: int = setting(
        "header.timeout.ms",
        10 * SECOND,
        "How long a client may take from connecting, or from the first byte of a request, to the end of its headers.",
        minimum=100,
        maximum=10 * MINUTE,
    )
    send_timeout_ms: int = setting(
        "send.timeout.ms",
        MINUTE,
        "How long a client may take nothing of an answer before its connection is cut.",
        minimum=SECOND,
        maximum=HOUR,
    )
    stream_timeout_ms: int = setting(
        "stream.timeout.ms",
        5 * MINUTE,
        "How long a stream of v3 records may be silent before it is ended.",
        minimum=SECOND,
        maximum=24 * HOUR,
    )
    keep_alive_timeout_ms: int = setting(
        "keep.alive.timeout.ms",
        MINUTE,
        "How long an idle connection is kept. Rounded up to seconds.",
        minimum=SECOND,
        maximum=HOUR,
    )
    metrics_max_partitions: int = setting(
        "metrics.max.partitions",
        1_000,
        "Partitions that /metrics shows one by one; totals count all of them.",
        minimum=0,
        maximum=100_000,
    )
    shutdown_timeout_ms: int = setting(
        "shutdown.timeout.ms",
        20 * SECOND,
        "How long a graceful stop waits for requests that are at work.",
        minimum=SECOND,
        maximum=10 * MINUTE,
    )
    console_enable: bool = setting("console.enable", True, "Serve the web console at /console.")
    console_max_streams: int = setting(
        "console.max.streams",
        100,
        "Pages of the console that may be kept up to date at once; further ones are answered 429.",
        minimum=1,
        maximum=10_000,
    )
    ingest_hooks_allowed: str = setting(
        "ingest.hooks.allowed",
        "",
        "Comma-separated dotted names of the hook classes that topics may name; nothing else is imported.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSettings:
    """What the service writes to standard error."""

    log_format: str = setting(
        "log.format", "json", "One JSON object per line, or lines for people.", choices=("json", "text")
    )
    log_level: str = setting(
        "log.level",
        "info",
        "The least important lines that are written.",
        choices=("debug", "info", "warning", "error"),
    )
    log_access_level: str = setting(
        "log.access.level",
        "warning",
        "Of requests: error writes 5xx, warning also 429, info all, debug also health checks.",
        choices=("debug", "info", "warning", "error"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """HTTPS."""

    certificate_file: str = setting(
        "tls.certificate.file", "", "PEM file of the certificate and its chain. Empty: plain HTTP."
    )
    key_file: str = setting("tls.key.file", "", "PEM file of the certificate's private key.")
    key_password: str = setting("tls.key.password", "", "Password of the key file, if it has one.", secret=True)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    storage: StorageSettings = field(default_factory=StorageSettings)
    wal: WalSettings = field(default_factory=WalSettings)
    log: LogSettings = field(default_factory=LogSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    group: GroupSettings = field(default_factory=GroupSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    jobs: JobSettings = field(default_factory=JobSettings)


GROUPS: Mapping[str, type[object]] = {
    "storage": StorageSettings,
    "wal": WalSettings,
    "log": LogSettings,
    "cluster": ClusterSettings,
    "topics": TopicSettings,
    "group": GroupSettings,
    "server": ServerSettings,
    "logging": LoggingSettings,
    "tls": TlsSettings,
    "spark": SparkSettings,
    "jobs": JobSettings,
}

_RELATIONS = (
    AtLeast(key="claim.timeout.ms", factor=3, other="claim.renew.ms"),
    # As long as a removed file may still be read, the commit that removed it is kept.
    AtLeast(key="log.json.retention.ms", factor=1, other="file.delete.delay.ms"),
    AtLeast(key="wal.max.bytes", factor=1, other="wal.file.bytes"),
    AtLeast(key="group.max.session.timeout.ms", factor=1, other="group.min.session.timeout.ms"),
)


def load_settings(path: Path | None, env: Mapping[str, str]) -> Settings:
    """Defaults, then the TOML file, then SLUICE_… variables. ConfigurationError for anything wrong or unknown."""
    settings, _ = load_settings_with_origins(path, env)
    return settings


def load_settings_with_origins(path: Path | None, env: Mapping[str, str]) -> tuple[Settings, Mapping[str, str]]:
    """The same, with the place where each key's value came from."""
    loaded = load(GROUPS, _RELATIONS, path, env)
    return Settings(**loaded.groups), loaded.origins
