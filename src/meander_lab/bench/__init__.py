"""Benchmarks: both sides in one run."""
