"""Benchmarks: both sides in one run.

What is measured is here, with every result compared; how it is asked for and printed is in `cli`.
"""
