"""One stream, rescaled while it flows, and compared: what `meander run` and the demo do.

No arguments are parsed and nothing is drawn here; the benches and live experiments use `flow`, too.
"""
