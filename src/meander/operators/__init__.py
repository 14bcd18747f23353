"""What users write, and what is built in."""
