"""NexMark: an auction house as a stream, ten questions about it, and Spark's answers to compare with.

events     the generator: an event is a function of its number
kernels    its compiled loops
queries    the queries, as values: operators, and edges between them
local      runs a query in one process, batch by batch, with moves in between
oracle     the same queries as Spark SQL, over all events at once
"""
