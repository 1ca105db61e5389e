"""Running pipelines: from a `PIPELINE.toml` to a streaming query."""
