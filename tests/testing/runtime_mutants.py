"""The runtime broken in one place at a time, each named by what is wrong: a checker must see each.

`python tests/testing/runtime_mutants.py [WORDS]` lets them loose, all, those with these words in their
names, or the quick ones (`--quick`), and prints the table of the documentation.
"""

import sys
from typing import NamedTuple

from meander_lab.mutants.bugs import Bug, Edit
from meander_lab.mutants.hunt import CAUGHT, HuntScope, hunt

SEEDS_MAX = 300
"""So many schedules each may take."""


class Broken(NamedTuple):
    """A mutant, and where it is looked for."""

    name: str
    bug: Bug
    trial: str
    """Empty: with every operator."""
    faults: tuple[str, ...]
    """Empty: with all of them."""

    def caught(self):
        """Let it loose."""
        scope = HuntScope(SEEDS_MAX, world="full", trial=self.trial, faults=self.faults)
        (found,) = hunt([self.bug], scope)
        return found


def mutant(name, module, *edits, trial="", faults=""):
    """Name one that is broken in one place; with an operator or faults that it takes to see it.

    Args:
        name: what is wrong.
        module: where.
        edits: texts and what comes in their place, in turn.
        trial: the operator that it takes.
        faults: those that it takes.
    """
    place = module if module.startswith(("spark", "protocol", "operators")) else f"runtime.{module}"
    pairs = zip(edits[::2], edits[1::2], strict=True)
    bug = Bug(name, tuple(Edit(f"meander.{place}", *pair) for pair in pairs))
    return Broken(name, bug, trial, tuple(faults.split()))


MUTANTS = [
    # ------------------------------------------------------------------ a process's turns
    mutant(
        "let leave what was caused though the lease has ended",
        "process.turns",
        "if not (may or _needs_no_lease(action)):",
        "if False:",
        faults="pause",
    ),
    mutant(
        "refuse the state of an older version of the operator",
        "operators.tasks",
        "elif self.operator.migrates_from(version):",
        "elif False:",
    ),
    mutant(
        "write a record without the rows that were noted",
        "process.adapter",
        "        self.settle()\n        return self._recorder.record(app",
        "        return self._recorder.record(app",
        "        self.settle()\n        return self._recorder.joins",
        "        return self._recorder.joins",
        "        self.settle()\n        return self._recorder.record_joint",
        "        return self._recorder.record_joint",
    ),
    mutant(
        "let a watermark take effect before the rows in front of it",
        "process.adapter",
        """            for group in grouped(layer.noted) if layer.noted else ():
                self._refuse_fed(self._process(group))
            self._refuse_fed(self.timing.hear(layer.watermarks))
""",
        """            self._refuse_fed(self.timing.hear(layer.watermarks))
            for group in grouped(layer.noted) if layer.noted else ():
                self._refuse_fed(self._process(group))
""",
        trial="windows",
    ),
    mutant(
        "lose what the store is told to let go of",
        "process.hands",
        "elif kind is Store or kind is Load or kind is Discard or kind is Sweep:",
        "elif kind is Store or kind is Load:",
    ),
    mutant(
        "cut what is fed one row too early",
        "process.feeding",
        "(np.diff(sending) != 0) | (np.diff(targets) != 0)) + 1",
        "(np.diff(sending) != 0) | (np.diff(targets) != 0))\n    cuts = cuts[cuts > 0]",
        trial="patterns",
    ),
    # ------------------------------------------------------------------ outputs
    mutant(
        "show outputs up to the last instead of the durable",
        "roles.output_answers",
        "return outputs.durable if node.gated else outputs.last",
        "return outputs.last",
    ),
    mutant(
        "release one output too many",
        "roles.output_answers",
        "found.release(min(upto.get(task, 0), newest(node, found)))",
        "found.release(min(upto.get(task, 0) + 1, newest(node, found)))",
    ),
    mutant(
        "give a reader the output before its stretch once more",
        "process.outputs",
        "if n > number and (upto is None or n <= upto)",
        "if n >= number and (upto is None or n <= upto)",
    ),
    mutant(
        "call outputs durable that came after the record",
        "process.keeping",
        "app.outputs.durable = mark.outputs",
        "app.outputs.durable = app.outputs.last",
    ),
    mutant(
        "let outputs go that nobody could read yet",
        "process.keeping",
        "app.outputs.retain(self.rows_max, app.outputs.durable)",
        "app.outputs.retain(self.rows_max, app.outputs.last)",
        trial="emits",
        faults="limits reader",
    ),
    mutant(
        "let a reader ask for what is not durable",
        "clients.output_scripts",
        "return ready if last < before else max(before, ready)",
        "return last",
    ),
    mutant(
        "forget what was durable when a task moves",
        "process.outputs",
        "return payloads, [self.last, self.lost_rows, self.durable, sizes]",
        "return payloads, [self.last, self.lost_rows, self.last, sizes]",
    ),
    mutant(
        "read a stretch of outputs as if all of it were there",
        "clients.output_scripts",
        "if first > span.after + 1 and self.fail_on_data_loss:",
        "if False:",
        trial="emits",
        faults="limits reader",
    ),
    mutant(
        "number outputs anew after a restore",
        "process.recording",
        "found.outputs.durable = found.outputs.last",
        "found.outputs.last = found.outputs.durable = 0",
    ),
    mutant(
        "show a copy's outputs as durable",
        "process.copying",
        'found.outputs.durable = int.from_bytes(blob[:DURABLE_BYTES], "little")',
        "found.outputs.durable = found.outputs.last",
    ),
    mutant(
        "take states for read whose node did not answer",
        "clients.state_scripts",
        "            silent.add(to)\n",
        "            served |= set(tasks)\n",
        faults="call crash host",
    ),
    # ------------------------------------------------------------------ time
    mutant(
        "leave timers out of a record",
        "process.recording",
        "timers, known = self.timing.dump(app)",
        'timers, known = b"", None',
        trial="windows",
    ),
    mutant(
        "forget the watermark of a moved task",
        "process.watermarks",
        "        result._heard_us = dict.fromkeys(here, now_us)\n",
        "        result._heard_us = dict.fromkeys(here, now_us)\n"
        "        result.watermarks, result._heard_us = {}, {}\n",
        trial="windows",
    ),
    mutant(
        "go by the fastest feeder instead of the slowest",
        "process.watermarks",
        "mark = min(told, default=0) - self._delay_us",
        "mark = max(told, default=0) - self._delay_us",
        trial="windows",
    ),
    mutant(
        "fire a window before its time",
        "process.timing",
        "known.event_timers.due(known.watermark_us)",
        "known.event_timers.due(known.watermark_us + 500_000)",
        trial="windows",
    ),
    mutant(
        "never fire by the clock",
        "process.timing",
        "fired = 0 if waits else self.fire(app, context, by_clock=True)",
        "fired = 0 if waits else self.fire(app, context)",
        trial="reminders",
    ),
    mutant(
        "lose the watermark of a micro-batch",
        "wire.codec",
        "marks = () if item.watermark is None else (Mark(0, 0, item.watermark),)",
        "marks = ()",
        trial="windows",
    ),
    mutant(
        "tell a micro-batch's watermark only to tasks with rows",
        "clients.pieces",
        "np.flatnonzero(bounds[1:] > bounds[:-1]).tolist() if watermark is None else range(tasks)",
        "np.flatnonzero(bounds[1:] > bounds[:-1]).tolist()",
        trial="windows",
    ),
    # ------------------------------------------------------------------ feeders
    mutant(
        "count a replayed offset twice",
        "wire.rows",
        "kept = tuple(mark for mark in self.marks if mark.offset > offset)",
        "kept = tuple(mark for mark in self.marks if mark.offset >= offset)",
        faults="feeder crash",
    ),
    mutant(
        "drop the lane's order when offers are pumped",
        "clients.gathering",
        """            offer(self._offers[0])
            self._given_rows += rows_of(self._offers.popleft().rows)
""",
        """            offer(self._offers[-1])
            self._given_rows += rows_of(self._offers.pop().rows)
""",
    ),
    mutant(
        "skip one offset of a replay",
        "clients.gathering",
        "if last <= self._durable:",
        "if last <= self._durable + 1:",
        faults="feeder",
    ),
    mutant(
        "owe no last watermark when a feeder leaves",
        "clients.feeder_process",
        "        self.gathering.end()\n",
        "",
        trial="windows",
    ),
    mutant(
        "call rows durable when they are sent",
        "clients.gathering",
        "return box.idle",
        "return True",
    ),
    mutant(
        "take rows after the feeder has left",
        "clients.feeder_process",
        "if process.ended or self.closed:",
        "if process.ended and self.closed:",
    ),
    mutant(
        "cut the rows of two source batches under one offset",
        "clients.offers",
        "sources.append((offset, cast(int, due)))",
        "sources.append((cast(int, gathered[-1][0]), cast(int, due)))",
        faults="feeder crash slow",
    ),
    mutant(
        "send a task's rows to its neighbour",
        "clients.offers",
        "owners = tasks_of(hashes, tasks)",
        "owners = (tasks_of(hashes, tasks) + 1) % tasks",
    ),
    # ------------------------------------------------------------------ blocks
    mutant(
        "take a block that was taken before",
        "protocol.kernels",
        "elif number <= numbers[task]:",
        "elif number < 0:",
        "elif number != numbers[task] + 1 or columns[2, i] <= offsets[task]:",
        "elif number > numbers[task] + 1:",
        trial="words",
    ),
    mutant(
        "take a block behind a gap",
        "protocol.kernels",
        "elif number != numbers[task] + 1 or columns[2, i] <= offsets[task]:",
        "elif columns[2, i] <= offsets[task]:",
        trial="words",
    ),
    mutant(
        "tell nobody that what came again is known",
        "protocol.node.express",
        "            self._owe(lanes, block.tasks[known], ACK_BYTES, now)\n",
        "            pass\n",
        trial="words",
        faults="loss",
    ),
    mutant(
        "take what came again of a block",
        "protocol.node.express",
        "            self._apply(block.pick(taken), lanes, size, now)\n",
        "            self._apply(block.pick(np.flatnonzero(fates < 2)), lanes, size, now)\n",
        trial="words",
    ),
    mutant(
        "call a block durable that is applied",
        "protocol.kernels",
        "columns[5, i] = numbers[task] if settled[task] else durable[task]",
        "columns[5, i] = numbers[task]",
        trial="words",
    ),
    mutant(
        "let the slots not know of blocks that were taken",
        "protocol.node.express",
        "                state.positions[feeder] = Position(lanes.incarnation, number, offset)\n",
        "                pass\n",
        trial="words",
    ),
    mutant(
        "write no record of what came in blocks",
        "protocol.node.express",
        "            slot.dirty = True\n",
        "            slot.dirty = slot.dirty\n",
        trial="words",
    ),
    mutant(
        "look at the slots while the express is open",
        "protocol.node.node",
        "        if not rows and type(event) is not Tick:\n",
        "        if False:\n",
        trial="words",
    ),
    mutant(
        "take a block of a task that is not served",
        "protocol.node.express",
        "if slot.phase is TaskPhase.SERVING and not slot.pending_chunks:",
        "if slot.state is not None:",
        trial="words",
    ),
    # ------------------------------------------------------------------ micro-batches
    mutant(
        "take a batch for committed before it is",
        "clients.query_process",
        "if not (yield self._until(lambda: commit.over, wait_s)):",
        "if False:",
        faults="query attempt crash",
    ),
    mutant(
        "tell a query that lost rows are committed",
        "driver.service",
        'return {"lost": str(error)}',
        'return {"done": True, "why": ""}',
        faults="crash reset",
    ),
    mutant(
        "take any end of a commit for a good one",
        "clients.query_book",
        'self._end(query, batch, RowsLostError(batch, facts["task"]))',
        "self._end(query, batch)",
        faults="crash reset",
    ),
    mutant(
        "call a partition written while pieces are on their way",
        "clients.query_process",
        "            yield from self._laid(query, batch, attempt, 0, timeout_s, meanwhile)\n",
        "",
    ),
    mutant(
        "keep all staged rows in memory",
        "store.staged",
        "if self.memory_bytes + rows.batch.nbytes > self.memory_bytes_max:",
        "if False:",
        faults="limits attempt",
    ),
    mutant(
        "write staged rows to disk without a limit",
        "store.staged",
        "if self.disk_bytes + len(blob) > self.disk_bytes_max:",
        "if False:",
        faults="limits attempt query",
    ),
    mutant(
        "commit without the pieces of one partition",
        "clients.query_process",
        "Seal(batch, tuple(parts), query)",
        "Seal(batch, tuple(parts[1:]), query)",
    ),
    # ------------------------------------------------------------------ the wire
    mutant(
        "take messages without a limit",
        "wire.inbox",
        "return many or self._bytes_in - self._bytes_out > self.bytes_max",
        "return False",
        faults="limits lazy slow pause",
    ),
    mutant(
        "queue messages without a limit",
        "wire.outgoing",
        "if full or len(queue) >= self._messages_max:",
        "if False:",
        faults="limits lazy slow clog partition",
    ),
    mutant(
        "take what waits for a peer to weigh nothing",
        "wire.outgoing",
        "self._bytes += size",
        "self._bytes += 0",
        faults="limits lazy slow clog partition",
    ),
    mutant(
        "take one for dead that answers",
        "wire.presence",
        "if found is not Pulse.DEAD:",
        "if found is Pulse.UNKNOWN:",
        faults="reset lazy",
    ),
    mutant(
        "read the rows of a chunk from its neighbour",
        "wire.codec",
        "rows = Rows(batch, start, end - start, told)",
        "rows = Rows(batch, max(0, start - 1), end - start, told)",
    ),
    # ------------------------------------------------------------------ the store
    mutant(
        "claim without looking",
        "store.durable",
        "elif not created and (yield Read(self.files, own)) != mine:",
        "elif False:",
        faults="master store",
    ),
    mutant(
        "claim beside others without looking who did",
        "store.durable",
        "if own != self._own and any(n >= generation and path != own for n, path in claims):",
        "if False:",
        faults="master store",
    ),
    mutant(
        "leave what a driver wrote beside its place and never brought there",
        "store.durable",
        "if 0 < left_by(e.path) < action.below",
        "if False",
        faults="master cut",
    ),
    mutant(
        "sweep what the manifest names",
        "store.durable",
        "if action.takes(e.path)",
        "if action._replace(keep=frozenset()).takes(e.path)",
        faults="crash master",
    ),
    mutant(
        "acknowledge by a manifest without looking who claims",
        "store.durable",
        """        yield Publish(self.files, name, action.data)
        if (yield from self._replaced(generation)):
            return False
""",
        """        yield Publish(self.files, name, action.data)
""",
        faults="master store partition",
    ),
    mutant(
        "go on from the oldest manifest",
        "store.durable",
        'path = manifests[-1].path if manifests else ""',
        'path = manifests[0].path if manifests else ""',
        faults="master",
    ),
    mutant(
        "answer nothing when a read fails",
        "store.answering",
        "return Loaded(action.key, None, why, again=True) if isinstance(action, Load) else None",
        "return None",
        faults="store crash",
    ),
    mutant(
        "take a failed read for nothing there",
        "store.answering",
        "return Loaded(action.key, None, why, again=True) if isinstance(action, Load) else None",
        "return Loaded(action.key, None) if isinstance(action, Load) else None",
        faults="store master",
    ),
    mutant(
        "publish where others see it half written",
        "store.filesystem",
        """        with self._whole_or_gone(beside):
            self._disk.write(beside, [data], sync=self.sync)
            self._disk.rename(beside, file)
""",
        """        self._disk.write(file, [data], sync=self.sync)
""",
        faults="cut store master",
    ),
    mutant(
        "read a spilled state from the start of its block",
        "store.spill",
        "start = offset - first * BLOCK_BYTES",
        "start = 0",
        faults="full",
    ),
    # ------------------------------------------------------------------ roles, the driver
    mutant(
        "keep no lease beside a long turn, and warn alone",
        "process.process",
        "self._hands.to_master(machine.beat_meanwhile(known, now))",
        "pass",
        faults="long",
    ),
    mutant(
        "start a state server once and never again",
        "driver.supervisor",
        "if (peer.server, launches) in self._running or now - at < SERVER_S_MIN:",
        "if peer.server in self._servers:",
        faults="server host",
    ),
    mutant(
        "let a fenced driver go on",
        "driver.core",
        "if tell.what is News.FENCED:",
        "if False:",
        faults="master",
    ),
    mutant(
        "wait for ever for a rescale that another takes the place of",
        "driver.rescales",
        "ENDS = frozenset({News.COMPLETED, News.ROLLED_BACK, News.SUPERSEDED})",
        "ENDS = frozenset({News.COMPLETED, News.ROLLED_BACK})",
    ),
    mutant(
        "forget a rescale that goes on without a node which never came",
        "driver.rescales",
        "            self._adopt(int(number or 0))\n",
        "            pass\n",
        faults="launch",
    ),
    mutant(
        "blame the deployment for a node that was let go",
        "driver.supervisor",
        """        if ended.clean:
            self._failed_restores = 0
            return None
""",
        """        if ended.clean:
            return DeployError(f"{ended.name} has left")
""",
    ),
    mutant(
        "say that what is durable is not",
        "driver.service",
        "core.settings, core.settings.checkpoint_s > 0,",
        "core.settings, False,",
    ),
    mutant(
        "let a round wait for its copies for ever",
        "protocol.master.copies_ahead",
        "if turn > turns or now - self.moved_on > settings.copy_s_max:",
        "if turn > turns:",
        faults="clog",
    ),
    mutant(
        "send a copy on that nobody answers",
        "protocol.node.copier",
        "if any(piece.sends >= SENDS_MAX for piece in out.unheard):",
        "if False:",
        faults="clog",
    ),
    mutant(
        "tell of states as lost that are not",
        "protocol.master.rehoming",
        "turn.tell(News.STATE_LOST, tasks=lost, why=why)",
        "turn.tell(News.STATE_LOST, tasks=[*range(6)], why=why)",
        faults="crash",
    ),
    # ------------------------------------------------------------------ records that move with tasks
    mutant(
        "let a task take along records that lack its newest rows",
        "protocol.node.manager",
        "if base is None or slot.dirty or slot.record is not None",
        "if base is None or slot.record is not None",
    ),
    mutant(
        "let a task take along records though a newer one is under way",
        "protocol.node.manager",
        "slot.dirty or slot.record is not None or slot.state",
        "slot.dirty or slot.state",
    ),
    mutant(
        "tell what has changed in a moved task by a mark that an earlier tenure left",
        "protocol.node.retriever",
        "            (mark,) = records.seal(self.operator, [state.app])\n",
        "            mark = slot.mark or records.seal(self.operator, [state.app])[0]\n",
    ),
    # ------------------------------------------------------------------ a processor's state
    mutant(
        "forget that a key was removed",
        "spark.processor.state",
        """            self.stamps[key] = self.version
            if len(self.stamps)""",
        """            self.stamps.pop(key, None)
            if len(self.stamps)""",
        trial="processor",
    ),
    mutant(
        "sweep away all of a key when something of it has outlived its time",
        "spark.processor.state",
        "                entry[:] = left\n",
        "                entry[:] = left = [None for _ in left]\n",
        trial="processor",
    ),
    mutant(
        "keep a key when all of it was swept away",
        "spark.processor.state",
        "                if not any(content is not None for content in left):\n",
        "                if False:\n",
        trial="processor",
    ),
    # ------------------------------------------------------------------ several operators
    mutant(
        "send what an edge carries to tasks of the first operator",
        "process.feeding",
        "to, part = target.first + int(targets[lb])",
        "to, part = int(targets[lb])",
        trial="relays",
    ),
    mutant(
        "let a task that is fed by tasks go on before all of them were heard",
        "process.watermarks",
        "            if tasks < self._upstream:\n                return False\n",
        "",
        trial="cascades",
    ),
    mutant(
        "leave tasks that are silent out of the watermark of those they feed",
        "process.watermarks",
        "heard[f] >= since or _is_task(f)]",
        "us > 0 and not _is_task(f)] or [us for f, us in self.watermarks.items()][:1]",
        trial="cascades",
    ),
    mutant(
        "tell a watermark to nobody who gets no rows",
        "process.telling",
        "        if app.time.watermark_us <= told.everybody_us:\n",
        "        if True:\n",
        trial="cascades",
    ),
    mutant(
        "have a loop wait for itself",
        "protocol.flow",
        "            if self.component(task) != mine\n",
        "",
        trial="relays",
    ),
    mutant(
        "take an operator's outputs for another's that come out elsewhere",
        "process.topology_adapter",
        "part.name in (topology.outputs or ())",
        "part.name not in (topology.outputs or ())",
        trial="relays",
    ),
    # ------------------------------------------------------------------ sinks
    mutant(
        "let nodes forget what is not committed",
        "roles.sinking",
        "                following.release(out)\n",
        "                following.release(following.numbers)\n",
        faults="reader crash",
    ),
    mutant(
        "begin a sink anew behind what is kept, not where it was",
        "roles.sinking",
        "None if committed is None else self._position.parse(committed)",
        "None",
        faults="reader crash",
    ),
    mutant(
        "commit a position behind what was written",
        "roles.sinking",
        "                out = following.settled(following.numbers)\n",
        "                out = following.settled(following.numbers + 1)\n",
        faults="reader crash",
    ),
    mutant(
        "write what two nodes have told twice",
        "clients.following",
        "new = (numbers > self._heard[tasks]) & ~again[tasks]",
        "new = ~again[tasks]",
    ),
    mutant(
        "say that early outputs are out before they are durable",
        "clients.following",
        "        if not self._early:\n",
        "        if True:\n",
    ),
    mutant(
        "go on behind what was told early when a task was restored",
        "clients.following",
        "                self._forget(task)\n",
        "                pass\n",
        faults="crash reset",
    ),
    mutant(
        "tell a sink of outputs that are not durable",
        "roles.output_answers",
        "upto = outputs.last if early else ready",
        "upto = outputs.last",
    ),
    mutant(
        "never look for nodes that have joined",
        "clients.following",
        "                yield Found(self.nodes)\n",
        "                yield Found(self.nodes)\n                return\n",
    ),
    # ------------------------------------------------------------------ who leaves, and other code
    mutant(
        "plan with nodes that were told to leave",
        "protocol.master.books",
        "if p.outgoing or p.noticed or",
        "if p.noticed or",
    ),
    mutant(
        "launch the first version of an operator after an upgrade",
        "driver.core",
        "code = self.versions[action.version - 1].pickled",
        "code = self.versions[0].pickled",
    ),
    mutant(
        "roll back to nodes of the new version",
        "protocol.master.conductor",
        "        self.books.version = migration.origin.version\n",
        "",
    ),
    mutant(
        "tell who heads back from an upgrade that it was superseded",
        "driver.rescales",
        "            self._known.pop(rescaling.number, None)\n",
        "            pass\n",
    ),
]
"""Each is caught within `SEEDS_MAX` schedules."""
QUICK = frozenset(
    {
        "write a record without the rows that were noted",
        "show outputs up to the last instead of the durable",
        "go by the fastest feeder instead of the slowest",
        "sweep what the manifest names",
        "take messages without a limit",
    }
)
"""Caught within seconds: tried every time, the others in the long tier."""


def main(words):
    """Print the table."""
    print("| mutation | module | seeds it took | checker |\n| --- | --- | --- | --- |")  # noqa: T201
    for broken in MUTANTS:
        if broken.name in QUICK if words == "--quick" else words in broken.name:
            catch = broken.caught()
            module = broken.bug.edits[0].module.removeprefix("meander.").removeprefix("runtime.")
            told = catch.by if catch.status == CAUGHT else f"**{catch.status}** {catch.text}"
            print(f"| {broken.name} | {module} | {catch.seeds} | {told} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
