"""Streams of texts: files, sockets, generated ones; paced, in windows, cut into words or patterns.

An offset always means the same rows. No Spark: `spark.pipeline.feeding` runs sources in its tasks.
"""
