"""Avro records as columns: a writer's schema becomes a small program that one kernel runs over all.

schema.py     the JSON of a schema ─► nodes
program.py    nodes, and the columns that are wanted ─► instructions, and where values will be
kernel.py     instructions, records ─► numbers; every step looks whether it stays in its record
columns.py    numbers ─► Arrow
registry.py   the number of a schema ─► its JSON, from a schema registry
reader.py     all of it, for the records of a topic
"""
