"""Everything that needs Spark; the only importer of pyspark.

    deploy/      `meander.deploy`: nodes as long-lived Spark tasks (`docs/spark.md`)
    datasource/  `format("meander")`: micro-batches in, outputs and state out (`docs/streaming.md`)
    processor/   classes for `transformWithState` as operators
    pipeline/    raw logs to profiles, traces and forecasts (`docs/pipeline.md`)
    cluster/     the session, its Java, its executors

Importing this package is cheap; pyspark is loaded by the modules that run jobs.
"""
