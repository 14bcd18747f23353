"""Two ends over a fake wire: machines, a pile of mail, and a hand that delivers what a test says.

Nothing moves by itself. `give` hands an event to a machine and puts what it sends on the pile;
`deliver` takes letters from the pile; `lose` throws them away. After every event the machine is
checked by `meander.protocol.invariants`.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

from meander.model import Assignment, Epoch, Run
from meander.protocol.blocks import Ack, Acks, Chunk, Chunks, Offer
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.edges.server import StateServer
from meander.protocol.invariants import check
from meander.protocol.master.ledger import Ledger
from meander.protocol.master.manifest import CLAIM_KEY
from meander.protocol.master.master import Master
from meander.protocol.master.round import CarriedRound
from meander.protocol.messages import (
    MASTER,
    Discard,
    Envelope,
    Exit,
    Fence,
    Grant,
    Launch,
    Load,
    Loaded,
    Member,
    Send,
    Store,
    Stored,
    Sweep,
    Tell,
    Tick,
    Welcome,
)
from meander.protocol.node.node import Node
from meander.protocol.reading import Blob
from meander.protocol.records import Ref, assemble, cut
from meander.protocol.settings import Settings
from meander.protocol.state import Emission
from meander.protocol.table import Table

FOREVER = Settings(lease_s=1e6)
"""For tests in which leases are not the point."""


class Notes:
    """An operator that notes every row: a row is (offset, task it is fed on to, or None).

    Nothing is ever changed but added, so the number of notes is a version.
    """

    def empty(self, task):
        return []

    def apply(self, task, app, feeder, rows, after):
        for offset, to in rows:
            if offset <= after:
                continue
            app.append([feeder, offset])
            if to is not None:
                yield Emission(to, ((offset, None),), 8)

    def dump(self, app):
        return json.dumps(app).encode()

    def load(self, task, blob):
        return json.loads(blob)

    def seal(self, app):
        return (len(app),)

    def record(self, app, since):
        blob = json.dumps(app[since[0] if since else 0 :]).encode()
        return lambda: (blob,)

    def revise(self, task, app, blob):
        return (app or []) + json.loads(blob)

    def dump_rows(self, rows):
        return json.dumps(rows).encode()

    def load_rows(self, blob):
        return tuple(tuple(row) for row in json.loads(blob))

    def join_rows(self, parts):
        return tuple(row for rows in parts for row in rows)

    def size(self, app):
        return 10 * len(app)


def chunk(number, *, feeder="f", task=0, incarnation=1, offset=None, to=None):
    """Make a chunk of one row."""
    offset = number if offset is None else offset
    return Chunk(feeder, incarnation, task, number, offset, offset, ((offset, to),), 8)


class Wire:
    """Machines with mail between them."""

    def __init__(self, settings=FOREVER):
        self.settings = settings
        self.now = 10.0
        self.machines = {}
        self.mail: list[Envelope] = []
        self.told: list[Tell] = []
        self.ended: dict[str, str] = {}
        self.launched: list[Launch] = []
        self.store: dict[str, bytes] = {}
        self.stores: list[tuple[str, Store]] = []
        """Writes that the durable store has not answered."""
        self.loads: list[tuple[str, Load]] = []
        self.discarded: list[str] = []
        self.swept: list[Sweep] = []
        self.records: dict[int, list[str]] = {}
        """The names of the records that the store has of each task, oldest first."""

    # ------------------------------------------------------------------ events

    def give(self, name, event):
        """Hand an event over; what it leads to goes onto the pile."""
        machine = self.machines[name]
        actions = machine.handle(event, self.now)
        if not machine.ended:
            check(machine)
        for action in actions:
            if isinstance(action, Send):
                self.mail.append(action.envelope)
            elif isinstance(action, Store):
                self.stores.append((name, action))
            elif isinstance(action, Load):
                self.loads.append((name, action))
            elif isinstance(action, Discard):
                self.discarded.extend(action.keys)
            elif isinstance(action, Sweep):
                self.swept.append(action)
            elif isinstance(action, Launch):
                self.launched.append(action)
            elif isinstance(action, Tell):
                self.told.append(action)
            elif isinstance(action, Exit):
                self.ended[name] = action.detail
        return actions

    def say(self, sender, to, body, *, incarnation=1, epoch=None, to_incarnation=0):
        """Deliver a message that nobody on the wire has sent."""
        epoch = self.machines[to].epoch if epoch is None else epoch
        return self.give(to, Envelope(sender, incarnation, to, to_incarnation, epoch, body))

    def tick(self, seconds=0.0, *names):
        """Let time pass and tell everybody, or just some."""
        self.now += seconds
        for name in names or list(self.machines):
            self.give(name, Tick())

    # ------------------------------------------------------------------ mail

    def pending(self, kind=None, *, to=None, sender=None):
        """List the letters on the pile that match."""
        return [
            e
            for e in self.mail
            if (kind is None or type(e.body) is kind)
            and to in (None, e.to)
            and sender in (None, e.sender)
        ]

    def deliver(self, kind=None, *, to=None, sender=None):
        """Deliver the letters that are on the pile now and match; give them."""
        found = self.pending(kind, to=to, sender=sender)
        self.lose(kind, to=to, sender=sender)
        for envelope in found:
            if envelope.to in self.machines:
                self.give(envelope.to, envelope)
        return found

    def lose(self, kind=None, *, to=None, sender=None):
        """Throw letters away; give them."""
        found = self.pending(kind, to=to, sender=sender)
        gone = {id(e) for e in found}
        self.mail = [e for e in self.mail if id(e) not in gone]
        return found

    def run(self, limit=200):
        """Deliver everything, and what that leads to; mail to nobody stays away."""
        for _ in range(limit):
            self.mail = [e for e in self.mail if self._reached(e)]
            if not self.mail:
                return
            self.deliver()
        raise AssertionError(f"still talking: {self.mail[:3]}")

    def _reached(self, envelope):
        """Whether somebody gets a letter; a fence for whoever was replaced goes to his address."""
        machine = self.machines.get(envelope.to)
        if machine is None or type(envelope.body) is not Fence:
            return machine is not None
        return envelope.to_incarnation in (0, machine.incarnation)

    # ------------------------------------------------------------------ the durable store

    def write(self, *, done=True):
        """Let the store answer all writes."""
        stores, self.stores = self.stores, []
        for name, action in stores:
            fence = int(self.store.get(CLAIM_KEY, b"0"))
            fenced = 0 < action.fence < fence + (action.key == CLAIM_KEY)
            data, extents = action.data, ()
            if isinstance(data, tuple):
                data, extents = assemble(data)
            if done and not fenced:
                self.store[action.key] = self.store[action.key] + data if action.append else data
                for extent in extents:
                    blob = data[extent.offset : extent.offset + extent.length]
                    ref = str(Ref(action.key, *extent))
                    for task in Blob(blob).tasks:
                        self.records.setdefault(task, []).append(ref)
            self.give(name, Stored(action.key, done and not fenced, fenced, extents))

    def read(self):
        """Let the store answer all reads."""
        loads, self.loads = self.loads, []
        for name, action in loads:
            self.give(name, self.loaded(action.key))

    def loaded(self, key):
        """Give what is in the store under a key, or a record."""
        if "#" not in key:
            return Loaded(key, self.store.get(key))
        ref = Ref.parse(key)
        try:
            found = self.store.get(ref.file, b"")[ref.offset : ref.offset + ref.length]
            return Loaded(key, cut(ref, found or None))
        except ValueError as error:
            return Loaded(key, None, str(error))

    def words(self):
        """List what people were told."""
        return [tell.what for tell in self.told]


# ---------------------------------------------------------------------- without a master


class Books(Wire):
    """A wire on which the test is the master: it keeps the ledger and publishes tables."""

    def __init__(self, owners="aab", settings=FOREVER, operator=Notes):
        super().__init__(settings)
        self.operator = operator
        self.ledger = Ledger(len(owners), list(owners))
        self.epoch = Epoch(1, 0)
        self.members = {}
        self.servers = {}
        self.closed = ()
        self.server("s")
        for name in sorted(set(owners)):
            self.node(name)
        for task in range(len(owners)):
            self.ledger.restore(task, owners[task], self.epoch.next())
        self.publish()
        self.settle_installs()

    def server(self, name, incarnation=1):
        machine = StateServer(name, self.settings, 1, f"{name}{incarnation}")
        self.machines[name] = machine
        self.servers[name] = incarnation
        self._join(machine, incarnation)
        return machine

    def node(self, name, incarnation=1, server="s"):
        machine = Node(name, incarnation, self.settings, 1, server, self.operator())
        self.machines[name] = machine
        self.members[name] = Member(incarnation, server)
        return machine

    def feeder(self, name="f", incarnation=1, offset=-1):
        machine = self.machines[name] = Feeder(name, self.settings, 1, f"{name}{incarnation}")
        self._join(machine, incarnation, offset)
        return machine

    def query(self, name="q", incarnation=1):
        machine = self.machines[name] = Query(name, name, self.settings, 1, f"{name}{incarnation}")
        self._join(machine, incarnation)
        return machine

    def _join(self, machine, incarnation, offset=-1):
        if self.epoch.number:
            self.say_welcome(machine, incarnation, offset)
            self.publish(machine.me)

    def say_welcome(self, machine, incarnation, offset=-1):
        grant = Grant(-1.0, 0.0, self.table)
        body = Welcome(incarnation, offset, grant, machine.instance)
        self.say(MASTER, machine.me, body, epoch=self.epoch)

    def publish(self, *names, new=True):
        """Make the next epoch and tell it to these (or to all); no names and new: everybody."""
        if new and not names:
            self.epoch = self.epoch.next()
            self.table = Table(
                self.ledger.assignment(self.members, self.epoch),
                self.ledger.incoming(),
                self.ledger.terms(),
                dict(self.members),
                dict(self.servers),
                self.closed,
            )
        for name in names or list(self.machines):
            self.tell(name)

    def next_table(self):
        """Make the next epoch without telling anybody."""
        told, self.tell = self.tell, lambda _: None
        self.publish()
        self.tell = told

    def tell(self, name):
        """Tell one process the newest table, with a lease."""
        machine = self.machines[name]
        if machine.ended:
            return
        if machine.incarnation == 0:
            self.say_welcome(machine, self.servers.get(name, 1))
        self.give(name, Tick())
        grant = Grant(self.now, self.settings.lease_s, self.table)
        self.say(MASTER, name, grant, epoch=self.epoch)
        self.lose(to=MASTER)

    def move(self, task, to):
        """Give a task to another node, in the next table."""
        owner = self.ledger.owner[task]
        incarnation = self.members[owner].incarnation
        self.ledger.move(task, to, incarnation, self.epoch.next())

    def settle_installs(self):
        """Take every install that the nodes report, and publish that."""
        self.run_quietly()
        for name, machine in self.machines.items():
            if isinstance(machine, Node):
                for item in machine.installs.unconfirmed.values():
                    self.ledger.installed(item.task, item.tenure, name)
        self.publish()
        self.run_quietly()

    def run_quietly(self):
        """Deliver everything but what goes to the master."""
        self.lose(to=MASTER)
        self.run()

    def notes(self, task, name=None):
        """Give the offsets that a task has noted, where it is served."""
        name = self.ledger.owner[task] if name is None else name
        state = self.machines[name].slots[task].state
        return None if state is None else [offset for _, offset in state.app]

    def phase(self, name, task):
        slot = self.machines[name].slots.get(task)
        return "absent" if slot is None else slot.phase.value

    def send(self, to, *chunks, epoch=None, sender="f", rerouted=False):
        """Deliver chunks to a node."""
        return self.say(sender, to, Chunks(chunks, rerouted), epoch=epoch)

    def ack(self, task, applied, durable, *, feeder="f", term=None, incarnation=1, sender="a"):
        """Deliver an acknowledgement to a feeder."""
        term = self.table.term(task) if term is None else term
        self.say(sender, feeder, Acks(feeder, (Ack(task, term, incarnation, applied, durable),)))

    def offer(self, *groups, name="f"):
        """Offer rows: (task, offset) pairs, or (task, offset, fed on to)."""
        items = tuple(
            (task, ((offset, rest[0] if rest else None),), offset, offset, 8)
            for task, offset, *rest in groups
        )
        return self.give(name, Offer(items, max(offset for _, offset, *_ in groups)))


# ---------------------------------------------------------------------- with a master


def even(problem):
    """Plan: the wanted nodes (those that are there first) get even intervals."""
    names = [*problem.staying, *problem.new_nodes][: problem.nodes]
    tasks, count = problem.current.tasks, len(names)
    cuts = [i * tasks // count for i in range(count + 1)]
    runs = [Run(cuts[i], cuts[i + 1], names[i]) for i in range(count) if cuts[i] < cuts[i + 1]]
    return SimpleNamespace(target=Assignment.from_runs(runs, names, tasks))


def one_by_one(current, target, sizes, limits, hosts):
    """Cut a round: at most `tasks_max` moves, in the order of the tasks."""
    moves = [
        (task, target.owner(task))
        for task in range(current.tasks)
        if current.owner(task) != target.owner(task)
    ][: limits.tasks_max]
    if not moves:
        return None
    return CarriedRound(tuple(moves), {t: i for i, (t, _) in enumerate(moves)}, len(moves))


class Town(Wire):
    """A wire with a real master; processes it launches start when the test says `start`."""

    def __init__(self, nodes=2, tasks=4, settings=None, *, start=True, generation=1):
        super().__init__(settings or Settings())
        names = tuple(f"n{i}" for i in range(1, nodes + 1))
        self.master = self.machines[MASTER] = Master(
            self.settings, tasks, names, even, one_by_one, generation=generation
        )
        self.generation = generation
        self.server("s")
        if start:
            self.up()

    def up(self):
        """Start the master and all it launches, and let them settle."""
        self.tick()
        self.answer_store()
        self.tick()
        self.start_launched()
        self.settle()

    def answer_store(self):
        while self.stores or self.loads:
            self.write()
            self.read()

    def server(self, name, instance="s-1"):
        machine = StateServer(name, self.settings, self.generation, instance)
        self.machines[name] = machine
        return machine

    def feeder(self, name="f", instance="f-1"):
        machine = Feeder(name, self.settings, self.generation, instance)
        self.machines[name] = machine
        return machine

    def query(self, name="q", instance="q-1"):
        machine = Query(name, name, self.settings, self.generation, instance)
        self.machines[name] = machine
        return machine

    def start_launched(self):
        """Start the processes of all launch orders."""
        launched, self.launched = self.launched, []
        for order in launched:
            node = Node(order.node, order.incarnation, self.settings, self.generation, "s", Notes())
            self.machines[order.node] = node

    def settle(self, seconds=3.0, step=0.1):
        """Let everybody talk for a while; the store answers at once."""
        for _ in range(round(seconds / step)):
            self.tick(step)
            self.run()
            self.answer_store()
            self.start_launched()
            for name in [n for n in self.ended if n in self.machines]:
                if self.machines[name].ended:
                    del self.machines[name]

    def kill(self, name):
        """End a process without a word."""
        return self.machines.pop(name)

    def owners(self):
        return "".join(owner[-1] for owner in self.master.ledger.owner)

    def stage(self):
        migration = self.master.conductor.migration
        return None if migration is None else migration.stage.value

    def notes(self, task):
        machine = self.machines[self.master.ledger.owner[task]]
        return [offset for _, offset in machine.slots[task].state.app]
