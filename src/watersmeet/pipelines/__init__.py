"""Pipelines as files: what stands in a `PIPELINE.toml`, and what is wrong with it. Knows nothing of Spark."""
