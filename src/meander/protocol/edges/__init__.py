"""What stands around the nodes: feeders, queries and state servers."""
