"""Servers on loopback, for tests and first steps: Kafka, ZooKeeper, Spark Standalone."""
