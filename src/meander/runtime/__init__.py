"""The protocol's machines on real ground: processes, sockets, clocks, disks. No Spark in here.

    wire/      between processes: messages as bytes, connections, who is let in
    process/   inside one process: a machine on one thread, the operator behind it, what it measures
    roles/     what a launched process is: a node, a state server, a feeder
    driver/    the master, the user's handle on it, the processes it starts and answers
    clients/   for programs outside: feeders, queries, readers
    store/     what is durable, and what is spilled to this machine's disk

The tour of the files is in `ARCHITECTURE.md`.
"""
