"""Spark batch jobs and their command line."""
