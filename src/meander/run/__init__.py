"""One stream, rescaled while it flows, and compared: what `meander run` and the demo do."""
