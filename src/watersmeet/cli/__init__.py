"""The `watersmeet` command. Subcommands import their dependencies when called: `--help` works without Spark."""
