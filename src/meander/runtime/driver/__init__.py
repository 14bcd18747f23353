"""The driver: the master, the user's handle on it, the processes it starts and answers.

How a process is started is behind `launch.Launcher`; what runs in it is in `roles`.
"""
