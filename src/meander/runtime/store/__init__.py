"""What is durable, on any file system; and what is laid out on this machine's disk."""
