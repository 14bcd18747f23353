"""Meander: elastic stateful streaming on PySpark."""

__version__ = "0.1.0"
