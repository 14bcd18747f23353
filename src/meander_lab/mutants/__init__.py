"""Mutants: the product broken in one place at a time, to see whether the simulator notices."""
