"""The Spark session, its Java, its executors: found, looked at, equipped."""
