"""What a checkpoint costs by the number of tasks: what `meander bench tasks` measures.

One master and one node stand in this process, with the real operator, codec and store between them and
no socket. So time on the processor is all there is, and it is known whose it is. Rows and keys are the
same whatever the number of tasks.

    start     a master and a node begin, with nothing to go on from, until every task serves
    full      every task is written for the first time: all keys are new
    change    some keys have changed since, of every task; the mean of several, some of which are whole
              again because their chain is long
    restore   another master and another node go on from that checkpoint, until every task serves
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meander.errors import MeanderError
from meander.model import Ints
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
from meander.runtime.process.gauge import RateGauge
from meander.runtime.process.spec import live_settings
from meander.runtime.process.warm import settle_heap, warm_up
from meander.runtime.store.answering import answer, complaints
from meander.runtime.store.durable import FileStore
from meander.runtime.store.steps import carry_out
from meander.runtime.wire.codec import decode, encode
from meander.runtime.wire.rows import RowBlock
from meander.wiring import carrier, planner

NODE, SERVER, FEEDER = "n1", "server@here", "words"
TICKS_MAX = 64


@dataclass(frozen=True)
class TaskLoad:
    """What is counted."""

    keys: int = 1_000_000
    changed: int = 100_000
    """Keys that change between two checkpoints."""
    changes: int = 24
    """More than a chain holds: some tasks are written whole again meanwhile."""


class Desk:
    """A master, a node and a state server that speak with one another; their time is accounted for."""

    def __init__(self, tasks: int, where: Path, generation: int) -> None:
        self.tasks, self.generation, self.now_s = tasks, generation, 100.0
        self.settings = live_settings(tasks, checkpoint_s=1.0, lease_s=1e9)
        self.store = FileStore(where, f"desk{generation}")
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        """By part."""
        self.machines: dict[str, Machine] = {
            MASTER: Master(
                self.settings, tasks, (NODE,), planner(), carrier, generation=generation
            ),
            SERVER: StateServer(SERVER, self.settings, generation, SERVER),
        }
        self._complaints = complaints(REAL)
        self._queue: deque[tuple[str, Event]] = deque()
        self._numbers: Ints = np.zeros(tasks, np.int64)
        """Of the last chunk of each task."""
        self._offset = 0

    @property
    def node(self) -> Node:
        """The only one."""
        node = self.machines[NODE]
        assert isinstance(node, Node)
        return node

    @property
    def state_bytes(self) -> int:
        """Of all tasks."""
        sizes = self.node.operator.sizes  # type: ignore[attr-defined]
        states = [slot.state for slot in self.node.slots.values()]
        return int(sum(sizes([state.app for state in states if state is not None])))

    def tick(self) -> None:
        """Let a second pass, and everything happen that follows."""
        self.now_s += 1.0
        self._queue.extend((name, Tick()) for name in self.machines)
        self._settle()

    def _settle(self) -> None:
        """Deliver until nobody has anything to say."""
        while self._queue:
            name, event = self._queue.popleft()
            began = time.thread_time()
            actions = self.machines[name].handle(event, self.now_s)
            if name == NODE:
                self.node.operator.settle()  # type: ignore[attr-defined]
            self.spent_s[name] += time.thread_time() - began
            for action in actions:
                began = time.thread_time()
                part = self._carry_out(name, action)
                self.spent_s[part] += time.thread_time() - began

    def _carry_out(self, name: str, action: Any) -> str:
        """Do what a machine wants done; tell whose time that is."""
        if isinstance(action, Send):
            wire, to = encode(action.envelope), action.envelope.to
            if to in self.machines:
                self._queue.append((to, decode(wire.header, wire.batch)))
            return "wire"
        if isinstance(action, Launch):
            adapter = OperatorAdapter(WordCount(), self.tasks, gated=True)
            place = NODE, action.incarnation, self.settings, self.generation, SERVER
            self.machines[NODE] = Node(*place, adapter, gauge=RateGauge(adapter))
            self._queue.append((NODE, Tick()))
        elif not isinstance(action, Tell):
            found = carry_out(answer(self.store, action, self._complaints))
            if found is not None:
                self._queue.append((name, found))
        return "records" if name == NODE and isinstance(action, Store | Load) else "manifest"

    def start(self) -> None:
        """Begin, until every task is served."""
        for _ in range(TICKS_MAX):
            self.tick()
            if NODE in self.machines:
                slots = self.node.slots.values()
                if sum(slot.phase is TaskPhase.SERVING for slot in slots) == self.tasks:
                    return
        raise MeanderError("some tasks are never served")

    def feed(self, words: pa.Array) -> None:
        """Let one block of rows come to the node."""
        rows = split(pa.record_batch({"word": words}), ["word"], self.tasks)
        self._offset += 1
        self._numbers[rows.tasks] += 1
        columns = np.zeros((5, len(rows.tasks)), np.int64)
        columns[0], columns[1], columns[2:4] = rows.tasks, self._numbers[rows.tasks], self._offset
        block = RowBlock(rows.batch, rows.bounds, [(self._offset, 0)], None)
        chunks = Chunks(Block(FEEDER, 1, columns, block))
        self._queue.append((NODE, Envelope(FEEDER, 1, NODE, 0, self.node.epoch, chunks)))
        self._settle()

    def checkpoint(self) -> dict[str, float]:
        """Write what has changed, until it is durable; give what that cost, in milliseconds.

        What as many seconds cost in which nothing has changed is not counted.
        """
        self.spent_s.clear()
        ticks = 0
        while ticks < TICKS_MAX:
            self.tick()
            ticks += 1
            if not any(slot.dirty or slot.record for slot in self.node.slots.values()):
                break
        else:
            raise MeanderError("a checkpoint never becomes durable")
        whole = self.spent()
        self.spent_s.clear()
        for _ in range(ticks):
            self.tick()
        idle = self.spent()
        return {part: ms - idle.get(part, 0.0) for part, ms in whole.items()}

    def spent(self) -> dict[str, float]:
        """Give what was spent since, in milliseconds: in all, and by part."""
        parts = {part: 1e3 * seconds for part, seconds in self.spent_s.items()}
        return {"ms": sum(parts.values()), **parts}


def measure(tasks: int, where: Path, load: TaskLoad) -> dict[str, dict[str, float]]:
    """Write and restore with so many tasks; `where` is an empty folder."""
    warm_up()
    settle_heap()
    words = pa.array([f"word number {i}" for i in range(load.keys)])
    random, desk = np.random.default_rng(1), Desk(tasks, where, 1)
    desk.start()
    start = desk.spent()
    desk.feed(words)
    full, changes = desk.checkpoint(), list[dict[str, float]]()
    for _ in range(load.changes):
        some = random.choice(load.keys, load.changed, replace=False)
        desk.feed(words.take(pa.array(some)))
        changes.append(desk.checkpoint())
    gc.collect()
    again = Desk(tasks, where, 2)
    again.start()
    restore = again.spent()
    if again.state_bytes != desk.state_bytes:
        raise MeanderError("what was restored is not what was written")
    mean = {part: float(np.mean([found[part] for found in changes])) for part in changes[0]}
    return {"start": start, "full": full, "change": mean, "restore": restore}
