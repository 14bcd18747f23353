"""The driver: the master, the user's handle on it, the processes it starts and answers."""
