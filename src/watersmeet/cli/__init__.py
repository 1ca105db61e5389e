"""The `watersmeet` command. What a subcommand needs is imported when it is called: `--help` works without Spark."""
