"""Inside one process: a machine on one thread, and the user's operator behind it."""
