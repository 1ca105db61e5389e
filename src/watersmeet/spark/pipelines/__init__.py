"""Pipelines at work: from what a `PIPELINE.toml` says to a streaming query."""
