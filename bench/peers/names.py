"""The figures that there are, for the report, which must not need what measuring needs."""

NAMES = ("produce", "latency", "fetch", "spark", "disk", "memory", "start", "recovery")
