"""`meander.deploy`: nodes as long-lived Spark tasks."""
