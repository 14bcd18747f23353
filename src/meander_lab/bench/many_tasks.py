"""What a checkpoint costs by the number of tasks: what `meander bench tasks` measures.

One master and one node stand in this process, with the real operator, codec and store between them and
no socket. So time on the processor is all there is, and it is known whose it is. Rows and keys are the
same whatever the number of tasks.

    full      every task is written for the first time: all keys are new
    change    some keys of every task have changed since; the mean of several
    restore   another master and another node go on from that checkpoint, until every task serves
"""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meander.operators import WordCount
from meander.operators.split import split
from meander.protocol.blocks import Block, Chunks
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import MASTER, Envelope, Event, Launch, Load, Send, Store, Tell, Tick
from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase
from meander.runtime.clock import REAL
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.spec import live_settings
from meander.runtime.store.answering import answer, complaints
from meander.runtime.store.durable import FileStore
from meander.runtime.store.steps import carry_out
from meander.runtime.wire.codec import decode, encode
from meander.runtime.wire.rows import RowBlock
from meander.wiring import carrier, planner

SERVER, FEEDER = "server@here", "words"
KEYS = 200_000
CHANGED = 20_000
"""Keys that change between two checkpoints."""
CHANGES = 24
"""More than a chain holds: some tasks are written whole again meanwhile."""


class Desk:
    """A master, a node and a state server that speak with one another; all time is accounted for."""

    def __init__(self, tasks: int, where: Path, generation: int) -> None:
        self.tasks, self.generation, self.now_s = tasks, generation, 100.0
        self.settings = live_settings(tasks, checkpoint_s=1.0, lease_s=1e9)
        self.store = FileStore(where, f"desk{generation}")
        self.complaints = complaints(REAL)
        self.spent: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.queue: deque[tuple[str, Event]] = deque()
        master = Master(self.settings, tasks, ("n1",), planner(), carrier, generation=generation)
        self.master = master
        self.machines: dict[str, Machine] = {
            MASTER: master,
            SERVER: StateServer(SERVER, self.settings, generation, SERVER),
        }
        self.number, self.offset = np.zeros(tasks, np.int64), 0
        self.sent: list[Envelope] = []

    @property
    def node(self) -> Node:
        """The only one."""
        node = self.machines["n1"]
        assert isinstance(node, Node)
        return node

    def tick(self) -> None:
        """Let a second pass, and everything happen that follows."""
        self.now_s += 1.0
        for name in list(self.machines):
            self.queue.append((name, Tick()))
        self.settle()

    def settle(self) -> None:
        """Deliver until nobody has anything to say."""
        while self.queue:
            name, event = self.queue.popleft()
            began = time.thread_time()
            actions = self.machines[name].handle(event, self.now_s)
            if name == "n1":
                self.node.operator.settle()
            self.spent[name] += time.thread_time() - began
            for action in actions:
                self.carry_out(name, action)

    def carry_out(self, name: str, action: Any) -> None:
        """Do what a machine wants done."""
        began, part = time.thread_time(), "wire"
        if isinstance(action, Send):
            envelope = action.envelope
            wire = encode(envelope)
            self.written["wire"] += wire.size
            if envelope.to in self.machines:
                self.queue.append((envelope.to, decode(wire.header, wire.batch)))
        elif isinstance(action, Launch):
            adapter = OperatorAdapter(WordCount(), self.tasks, gated=True)
            self.machines["n1"] = Node(
                "n1", action.incarnation, self.settings, self.generation, SERVER, adapter
            )
            self.queue.append(("n1", Tick()))
        elif not isinstance(action, Tell):
            part = "store" if isinstance(action, Store | Load) and name == "n1" else "manifest"
            if isinstance(action, Store):
                self.written[part] -= self.bytes()
            found = carry_out(answer(self.store, action, self.complaints))
            if isinstance(action, Store):
                self.written[part] += self.bytes()
            if found is not None:
                self.queue.append((name, found))
        self.spent[part] += time.thread_time() - began

    def bytes(self) -> int:
        """Of all files."""
        return sum(f.size for folder in ("log", "manifest") for f in self.store.files.list(folder))

    def serving(self) -> bool:
        """Whether every task is served."""
        if "n1" not in self.machines:
            return False
        slots = self.node.book.slots.values()
        return len(slots) == self.tasks and all(s.phase is TaskPhase.SERVING for s in slots)

    def start(self) -> None:
        """Begin, until every task is served."""
        while not self.serving():
            self.tick()

    def feed(self, words: pa.RecordBatch) -> None:
        """Let one block of rows come to the node."""
        rows = split(words, ["word"], self.tasks)
        self.offset += 1
        self.number[rows.tasks] += 1
        columns = np.zeros((5, len(rows.tasks)), np.int64)
        columns[0], columns[1] = rows.tasks, self.number[rows.tasks]
        columns[2:4] = self.offset
        block = Block(
            FEEDER, 1, columns, RowBlock(rows.batch, rows.bounds, [(self.offset, 0)], None)
        )
        self.queue.append(("n1", Envelope(FEEDER, 1, "n1", 0, self.node.epoch, Chunks(block))))
        self.settle()

    def checkpoint(self) -> dict[str, float]:
        """Write what has changed, until it is durable; give what that cost, in milliseconds."""
        for part in (self.spent, self.written):
            part.clear()
        gc.collect()
        for _ in range(64):
            self.tick()
            if not any(slot.dirty or slot.record for slot in self.node.slots.values()):
                break
        else:
            raise AssertionError("it never becomes durable")
        return self.told()

    def told(self) -> dict[str, float]:
        """Give what was spent since, in milliseconds, and what was written, in KiB."""
        found = {f"{part}_ms": 1e3 * seconds for part, seconds in self.spent.items()}
        sizes = {f"{part}_kib": size / 1024 for part, size in self.written.items()}
        return {"ms": sum(found.values()), **found, **sizes}


def measure(tasks: int, where: Path) -> dict[str, dict[str, float]]:
    """Write and restore with so many tasks."""
    words = pa.array([f"word number {i}" for i in range(KEYS)])
    random, desk = np.random.default_rng(1), Desk(tasks, where, 1)
    desk.start()
    desk.feed(pa.record_batch({"word": words}))
    full, changes = desk.checkpoint(), []
    for _ in range(CHANGES):
        some = random.choice(KEYS, CHANGED, replace=False)
        desk.feed(pa.record_batch({"word": words.take(pa.array(some))}))
        changes.append(desk.checkpoint())
    gc.collect()
    again = Desk(tasks, where, 2)
    again.start()
    names = changes[0].keys()
    mean = {name: sum(found.get(name, 0.0) for found in changes) / CHANGES for name in names}
    shown = sum(again.node.operator.sizes([s.state.app for s in again.node.slots.values()]))
    before = sum(desk.node.operator.sizes([s.state.app for s in desk.node.slots.values()]))
    assert shown == before, "the state differs"
    return {"full": full, "change": mean, "restore": again.told()}
