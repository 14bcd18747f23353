"""Real processes, harmed on purpose: `meander chaos` and `meander soak`.

havoc      ways to harm: kill, stop, cut connections, fill a disk
load       streams that can be read again, and the plain count that results are compared with
campaign   load, rescales and harm under a seed; what came of it
soak       rescales for a long time; what has grown
"""
