"""Settings of the log itself: where it is stored, how it commits, keeps and reads."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.conf.declare import GIB, HOUR, KIB, MIB, MINUTE, SECOND, setting


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
    pending_max_bytes: int = setting(
        "pending.max.bytes",
        256 * MIB,
        "Accepted but uncommitted bytes of all partitions together, with 12 KiB for each batch, above which "
        "produce is refused.",
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
