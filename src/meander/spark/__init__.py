"""Everything that needs Spark; the only importer of pyspark.

Here: the batch pipeline from raw logs to a workload and a trace (`docs/pipeline.md`). Importing
this package is cheap; pyspark is loaded by the modules that run jobs.
"""
