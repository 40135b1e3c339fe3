"""Sluice beside the real thing: a Kafka broker, its own tools and Spark's Kafka source, on one machine, in turns."""
