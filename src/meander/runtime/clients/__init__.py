"""For those who come from outside: feeders, queries, readers."""
