"""By this name Spark finds the format `watersmeet`, when a program asks for it: no session has to register it.

For a format that it does not have Spark imports all modules called `pyspark_…` and takes the `DefaultSource` of each.
"""

from watersmeet.spark.workload_source import WorkloadSource as DefaultSource

__all__ = ["DefaultSource"]
