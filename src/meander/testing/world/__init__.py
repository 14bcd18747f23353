"""A whole deployment in one thread: the processes of production, on a virtual clock, wire and disk."""
