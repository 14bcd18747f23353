"""The protocol's machines on real ground: processes, sockets, clocks, disks. No Spark in here.

rows        rows of a chunk: a slice of an Arrow batch, with source offsets and due times
codec       envelope ↔ bytes and Arrow       transport   Flight servers and streams
shell       one machine on one thread        store       the durable store: a directory
adapter     an operator behind the machine   outputs     what operators emit, until fetched
client      the feeder of a Python program   processes   what runs in a launched process
launch      how processes are started        driver      the master, and the user's handle on it
querying    micro-batches of queries         reception   the driver's side of them
emitted     outputs by offset                shelf       the node's side of them
given       rows as callers have them        totals      sums over nodes, past ones too
metrics     histograms and reports           restart     the baseline that stops everything
"""
