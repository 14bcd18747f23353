"""What a launched process is: a node, a state server, a feeder.

It joins a machine, a shell and a socket, answers requests, and ends with a reason.
"""
