"""The command line: one module per command, which parses, calls and prints. No logic of its own."""
