"""Pipelines as files: reading and checking a `PIPELINE.toml`. Independent of Spark."""
