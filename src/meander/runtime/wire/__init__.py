"""Between processes: messages as bytes, connections, and who is let in."""
