"""What a launched process is: a node, a state server, a feeder."""
