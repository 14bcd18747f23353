"""Inside one process: a machine on one thread, and the user's operator behind it.

No connection is opened here: events come from `wire`, actions go there.
"""
