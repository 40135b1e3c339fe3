"""Settings of the service: consumer groups, HTTP, its own log lines, TLS."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.conf.declare import GIB, HOUR, KIB, MIB, MINUTE, SECOND, setting


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
