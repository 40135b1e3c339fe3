"""Spark: the source, the sink and consumer-group jobs."""
