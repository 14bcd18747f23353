"""Streams of texts: files, sockets, generated ones; paced, in windows, cut into words or patterns."""
