"""From raw logs to profiles, traces and forecasts, on Spark."""
