"""The public testing kit."""
