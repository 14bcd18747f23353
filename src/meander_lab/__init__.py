"""What measures Meander and is no part of it: experiments, benchmarks, chaos, baselines, servers.

A package of its own; nothing of `meander` imports it.
"""
