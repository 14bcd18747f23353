"""For those who come from outside: feeders, queries, readers.

They connect to a deployment by its address; they start no process of it.
"""
