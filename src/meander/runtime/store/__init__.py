"""What is durable, on any file system; and what is laid out on this machine's disk.

Which records count is decided by the master (`protocol.master.archive`), not here.
"""
