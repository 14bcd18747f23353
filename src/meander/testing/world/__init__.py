"""The world around the processes, simulated: what is in it is what runs, on a virtual clock."""
