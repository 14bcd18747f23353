"""Maximal frequent patterns, the paper's second application: generator, detector, state."""
