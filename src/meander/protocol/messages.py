"""Every message, event and action of the protocol: plain values, no behaviour.

Rules of the file
  1. A *message* travels between processes, always inside an `Envelope`, which names who sent it:
     generation, incarnation and epoch stand there, once, for all messages.
  2. An *event* goes into a machine (`handle(event, now)`): an envelope that arrived, a tick, an
     answer of the durable store, a command.
  3. An *action* comes out of a machine: send, store, load, launch, exit. The shell that runs the
     machine (the simulator or the runtime) carries it out and has no opinion of its own.
  4. The types of a message's fields say its limits (`Int`, `Name`, `Many`): what comes off a wire is
     read by them (`runtime.wire.codec`), and the machine's door checks them once more (`shape`).

Words
  tenure   the epoch at which a node became the owner of a task. `(task, tenure)` names one stretch
           of ownership, and so one version of the task's state.
  term     the tenure at which a task was last *restored* (from a checkpoint, or from an older copy).
           Whatever was applied, but not durable, in an earlier term never happened: feeders rewind.
  chain    the tenures between the last one known to be installed and the present one, oldest first:
           who may hold the state of a task that is not yet installed.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any, NamedTuple, TypeAlias

from meander.model import Epoch, Int, Many, Name, NodeId, TaskId
from meander.protocol.blocks import Acks, Chunks, LoopAcks, Offer
from meander.protocol.spans import Spans

PeerId: TypeAlias = Name
"""A process: a node (`n1`), a state server, a feeder, a query's writer or committer, the master."""
FeederId: TypeAlias = Name

MASTER: PeerId = "master"
STORE: NodeId = "@store"
"""In a chain, in place of a node: the state comes from the durable store."""
ONCE = "write/"
"""So begin the names of queries with one batch only: writes that were given no name."""


def loop_feeder(task: TaskId) -> FeederId:
    """Name the feeder that a task is for its own operator."""
    return f"loop/{task}"


def loop_task(feeder: FeederId) -> TaskId | None:
    """Give the emitting task of a loop feeder; None for any other feeder.

    >>> loop_task(loop_feeder(7)), loop_task("clicks")
    (7, None)
    """
    return int(feeder[5:]) if feeder.startswith("loop/") else None


# --------------------------------------------------------------------------- what is published


class TenureLink(NamedTuple):
    """One tenure of a chain."""

    node: NodeId
    """Who held it, or `STORE`."""
    incarnation: Int
    tenure: Epoch
    key: Name = ""
    """With `STORE`: the checkpoint to load; empty for a task that starts from nothing."""


class Incoming(NamedTuple):
    """Neighbouring tasks that their owner has not yet installed, and who may hold their state."""

    lb: Int
    ub: Int
    tenure: Epoch
    chain: Many[TenureLink]
    """Newest last. The state is at the last link whose node ever installed its tenure."""
    rank: Int = 0
    """Place in the round's phase schedule: lower ranks are fetched first."""


class Member(NamedTuple):
    """A node or state server that may be spoken to."""

    incarnation: Int
    server: PeerId
    """A node's state server; empty for a server itself."""


# --------------------------------------------------------------------------- data messages


class Staged(NamedTuple):
    """Rows of one attempt at one partition of one micro-batch, for one task."""

    query: Name
    batch: Int
    partition: Int
    attempt: Int
    task: TaskId
    rows: Any
    tally: Int
    size: Int = 1


class Stage(NamedTuple):
    """Lay rows of a micro-batch by, without applying them."""

    items: Many[Staged]
    reply_to: PeerId


class StageHeld(NamedTuple):
    """These are laid by at the owner of their task."""

    items: Many[tuple[Name, Int, Int, Int, TaskId]]
    """(query, batch, partition, attempt, task)."""
    outdated: Many[tuple[Name, Int, Int, Int, TaskId, Int]] = ()
    """The same and a batch: these are not. The task has taken in this later one of their query."""


class Unstage(NamedTuple):
    """These attempts were given up: forget their rows.

    Nobody answers. Where it is not heard, the rows go when their query commits, or in time.
    """

    items: Many[tuple[Name, Int, Int, Int, TaskId]]
    """(query, batch, partition, attempt, task)."""


class Winner(NamedTuple):
    """The attempt that counts for one partition, and how many rows it staged for one task."""

    partition: Int
    attempt: Int
    tally: Int


class CommitTask(NamedTuple):
    """Apply the winners' rows of a micro-batch to one task, atomically."""

    query: Name
    batch: Int
    task: TaskId
    winners: Many[Winner]


def newest_attempt(order: CommitTask) -> int:
    """Give the newest attempt that an order names; -1 if it names none.

    >>> newest_attempt(CommitTask("q", 0, 7, (Winner(0, 3, 1), Winner(1, 5, 2))))
    5
    """
    return max((winner.attempt for winner in order.winners), default=-1)


class Commit(NamedTuple):
    """Commit orders gathered for one node."""

    items: Many[CommitTask]
    reply_to: PeerId


class CommitOutcome(NamedTuple):
    """What became of a commit order at its task."""

    task: TaskId
    term: Epoch
    applied: bool
    durable: bool
    missing: bool
    """Staged rows were lost with a crash: the batch must be written again."""
    had: Int = -1
    """Rows that the task took in under this batch, if it is not as many as these; else -1."""
    attempt: Int = -1
    """With `missing`: the newest attempt that the order names. Whoever has written the batch again
    since does not mind an answer to an earlier order."""


class Committed(NamedTuple):
    """Outcomes of one micro-batch."""

    query: Name
    batch: Int
    outcomes: Many[CommitOutcome]


# --------------------------------------------------------------------------- state messages


class Put(NamedTuple):
    """Keep this state for whoever fetches it. `blob` None: this tenure was never installed."""

    task: TaskId
    tenure: Epoch
    target: Epoch
    """The tenure it is meant for: a later `Drop` on behalf of an earlier one does not free it."""
    blob: bytes | None
    checksum: Int


class PutDone(NamedTuple):
    """The state server holds it, or is full (then try again later)."""

    task: TaskId
    tenure: Epoch
    target: Epoch
    held: bool


class Fetch(NamedTuple):
    """Send me this state from an offset on."""

    task: TaskId
    tenure: Epoch
    offset: Int


class Part(NamedTuple):
    """A piece of a state, or word that there is none."""

    task: TaskId
    tenure: Epoch
    offset: Int
    total: Int
    """Bytes in all; -1: that tenure was never installed; -2: not here (yet)."""
    data: bytes
    checksum: Int
    """Of the whole."""


NEVER = -1
NOT_YET = -2


class Drop(NamedTuple):
    """Installed: these need not be held any longer."""

    items: Many[tuple[TaskId, Epoch, Epoch]]
    """(task, tenure, the tenure that has installed it)."""


# --------------------------------------------------------------------------- copies ahead


class Prepare(NamedTuple):
    """These tasks will move: copy their states to their next owners while you serve on."""

    items: Many[tuple[TaskId, Epoch, NodeId, Int]]
    """(task, the tenure it is served under, next owner, turn). With every turn the copy catches up."""
    wait_s: float
    """Slow down when rows wait so much longer than usual for their turn."""
    rate_bytes_s: float = 0.0
    """But not below this: the caller has said how long all may take."""


class Copy(NamedTuple):
    """A piece of a copy: what has changed since the pieces before it. The first begins with nothing."""

    task: TaskId
    tenure: Epoch
    """Of the sender, who serves the task."""
    copy: Int
    """Ascends at the sender: pieces of two copies never mix."""
    number: Int
    """Counts the pieces of a copy from 1."""
    data: bytes
    checksum: Int


class Copied(NamedTuple):
    """So much is in the copy."""

    task: TaskId
    tenure: Epoch
    copy: Int
    number: Int
    """Of the last piece in it; 0: it has none. `REFUSED`: what was sent fits no copy that is here."""
    wait_s: float = 0.0
    """How much longer than usual rows have waited here lately for their turn."""


REFUSED = -1


class Rest(NamedTuple):
    """The task is frozen: with this, the copy is its state."""

    task: TaskId
    tenure: Epoch
    copy: Int
    number: Int
    """One more than the last piece's: without that the copy is not whole."""
    data: bytes
    checksum: Int


class Prepared(NamedTuple):
    """The copies of these tasks are up to date, or cannot be made."""

    items: Many[tuple[TaskId, Epoch, Int]]
    """(task, tenure, turn); turn 0: the copy has grown, and is not up to date yet."""


# --------------------------------------------------------------------------- control messages


class Hello(NamedTuple):
    """A process registers. A node says the incarnation it was launched with; others are given one."""

    kind: Name
    """`node`, `server`, `feeder` or `query`."""
    instance: Name
    """Tells this process from every other that ever bore its id: a late Hello is recognised."""
    server: PeerId = ""
    address: Name = ""
    """Where it listens; empty where the network finds processes by their id."""


class Welcome(NamedTuple):
    """You are in: your incarnation, and for a feeder where to read on."""

    incarnation: Int
    offset: Int
    """The last source offset that needs no replay; -1: begin at the beginning."""
    grant: Grant
    instance: Name
    """Whom it is meant for, as in its Hello: another process under the same id is not."""


class Beat(NamedTuple):
    """I am alive, know this epoch, and ask for my lease. Carries what the master wants to know."""

    sent: float
    """My clock. It comes back in the grant, so that a lease counts from before the request. Negative:
    this acknowledges an epoch, and asks for nothing."""
    tasks: Many[TaskId] = ()
    """Those of which something is told."""
    work: Many[Int] = ()
    """Of each of them."""
    sizes: Many[Int] = ()
    """Of each of them, in bytes."""
    offset: Int = -1
    """A feeder's last source offset that needs no replay."""
    missing: bool = False
    """I have heard of an epoch that I do not have: send me the table."""
    trouble: Name = ""
    """What the durable store could not do for me when I last asked; empty: all is well."""
    counts: Many[tuple[Name, float]] = ()
    """What I have counted so far, for people; the master looks at none of it."""
    ends_s: float = -1.0
    """In how many seconds I am taken away, as I was told; negative: nobody has told me."""


class Grant(NamedTuple):
    """Your lease, and the newest table if you lack it."""

    sent: float
    """Echo of the beat; negative: this is unasked news, the lease is not renewed."""
    lease_s: float
    table: Any
    """A `Table`, or None."""
    trouble: Name = ""
    """Why nothing becomes durable, for whoever waits for it; empty: all is well."""


class Install(NamedTuple):
    """One task that is installed."""

    task: TaskId
    tenure: Epoch
    size: Int
    pause_s: float
    """From the first tuple that waited (or the request, if none did) until the task served."""
    transfer_s: float
    waited: bool


class Installed(NamedTuple):
    """These tasks are installed at the sender."""

    items: Many[Install]


class RecordNote(NamedTuple):
    """A record in the durable store, of tasks that have the same tenure and the same record before."""

    tasks: Spans
    tenure: Epoch
    number: Int
    """Ascends within a tenure."""
    key: Name
    """Where it is (`records.Ref`)."""
    parent: Name = ""
    """The record that it is a change of; empty: it is whole."""


class Checkpointed(NamedTuple):
    """These records are written; they count when the master says so."""

    items: Many[RecordNote]


class Hurry(NamedTuple):
    """Somebody waits until what you were sent is durable: write it now, not in the next round."""


class Accepted(NamedTuple):
    """These records are in the manifest: what they hold is durable."""

    items: Many[tuple[Spans, Epoch, Int]]
    """(tasks, tenure, number)."""


class Dismiss(NamedTuple):
    """Nobody can still send to you: leave."""


class Fence(NamedTuple):
    """You have been replaced: stop."""

    instance: Name = ""
    """Whom it is meant for; empty: whoever has the incarnation it is addressed to."""


class Bye(NamedTuple):
    """I am done and leave for good."""

    offset: Int = -1
    """A feeder's last source offset: all up to it is durable."""
    failure: Name = ""
    """Why a node cannot go on: its operator has raised. Empty: it was dismissed."""
    trace: Many[Name] = ()
    """Where that was: the last lines of its traceback."""


Message: TypeAlias = (
    Chunks
    | Acks
    | LoopAcks
    | Stage
    | StageHeld
    | Unstage
    | Commit
    | Committed
    | Put
    | PutDone
    | Fetch
    | Part
    | Drop
    | Prepare
    | Copy
    | Copied
    | Rest
    | Prepared
    | Hello
    | Welcome
    | Beat
    | Grant
    | Installed
    | Checkpointed
    | Hurry
    | Accepted
    | Dismiss
    | Fence
    | Bye
)


class Envelope(NamedTuple):
    """A message under way."""

    sender: PeerId
    incarnation: Int
    to: PeerId
    to_incarnation: Int
    """0: any."""
    epoch: Epoch
    """The newest the sender knew; its first half is the generation."""
    body: Message


# --------------------------------------------------------------------------- events and actions


class Tick(NamedTuple):
    """Time has passed: look at deadlines. Whoever drives a machine gives one when it is `due_at`."""


class PeerLost(NamedTuple):
    """The connection to a process broke, and it does not come back under this incarnation."""

    peer: PeerId
    incarnation: int


class Extent(NamedTuple):
    """Where a record is in its file."""

    offset: int
    length: int
    checksum: int


class Stored(NamedTuple):
    """The durable store has it, or could not take it."""

    key: str
    done: bool
    fenced: bool = False
    """Refused because a later generation has written: this writer has been replaced."""
    extents: tuple[Extent, ...] = ()
    """Of a file of records: where each of them is."""
    fault: str = ""
    """Why it could not take it."""


class Loaded(NamedTuple):
    """What the durable store has under a key; None: nothing that can be used."""

    key: str
    data: bytes | None
    fault: str = ""
    """What is wrong with it."""
    again: bool = False
    """The store could not tell: what is there is not known, and is to be asked for again."""


class Write(NamedTuple):
    """One attempt at one partition of a micro-batch, grouped by task."""

    batch: int
    partition: int
    attempt: int
    groups: tuple[tuple[TaskId, Any, int, int], ...]
    """(task, rows, count, bytes), every task at most once."""
    query: str = ""
    """Empty: the machine's own."""


class Seal(NamedTuple):
    """All partitions of a micro-batch are written: apply the winners."""

    batch: int
    parts: tuple[tuple[int, int, tuple[tuple[TaskId, int], ...]], ...]
    """(partition, winning attempt, ((task, count), …))."""
    query: str = ""
    """Empty: the machine's own."""


class Abandon(NamedTuple):
    """Attempts that will never be committed: their rows need not be kept."""

    batch: int
    attempts: tuple[tuple[int, int, tuple[TaskId, ...]], ...]
    """(partition, attempt, the tasks it wrote for)."""
    query: str = ""
    """Empty: the machine's own."""


class Finish(NamedTuple):
    """A feeder's source is at its end: close when everything is durable. A query's client: leave."""


class Hasten(NamedTuple):
    """To a feeder: somebody waits until all that was offered so far is durable."""


class Notice(NamedTuple):
    """To a node: it is taken away soon. It tells the master, and goes on until it is dismissed."""

    within_s: float


class Rescale(NamedTuple):
    """Command to the master: so many nodes, from where things stand."""

    nodes: int
    pause_ms: float | None = None
    tasks_max: int | None = None
    bytes_max: int | None = None
    within_s: float | None = None
    share_max: float | None = None
    """How much of all work one node may have by the plan; None: as the deployment's τ says."""
    leaving: tuple[NodeId, ...] = ()
    """Nodes that shall not be among them."""
    version: int | None = None
    """Which version of the operator they shall all run, those of others leave; None: as now."""
    one_way: bool = False
    """Nodes of earlier versions cannot read what later ones write: there is no way back."""
    groups: tuple[tuple[str, int], ...] = ()
    """So many nodes for some groups of operators, the others keep theirs; then `nodes` is not asked."""


class Abort(NamedTuple):
    """Command to the master: stop here; tasks under way return to whoever holds their state."""


class Resume(NamedTuple):
    """Command to the master: carry the aborted migration on."""


class RollBack(NamedTuple):
    """Command to the master: go back to the assignment before the migration."""


Event: TypeAlias = (
    Envelope
    | Tick
    | PeerLost
    | Stored
    | Loaded
    | Offer
    | Write
    | Seal
    | Abandon
    | Finish
    | Hasten
    | Notice
    | Rescale
    | Abort
    | Resume
    | RollBack
)


class Send(NamedTuple):
    """Hand this to the network. It may be lost, doubled, delayed."""

    envelope: Envelope


class Store(NamedTuple):
    """Write to the durable store.

    The master's writes carry its generation as `fence`. The store grants the claim of a generation
    once, and refuses every fenced write of a lower one from then on.
    """

    key: str
    data: Any
    """Bytes; or, for a file of records, a tuple of `records.Part`."""
    fence: int = 0
    append: bool = False
    """To what is under the key, rather than in its place: it is read as one."""


class Load(NamedTuple):
    """Read from the durable store: a key, or a record by its `records.Ref`."""

    key: str


class Discard(NamedTuple):
    """These keys of the durable store are no longer needed."""

    keys: tuple[str, ...]


def generation_of(key: str) -> int:
    """Tell which generation wrote a file of the log (`log/GENERATION/NODE.INCARNATION/NUMBER`)."""
    part = key.split("/")[1]
    return int(part) if part.isascii() and part.isdecimal() else 0


class Sweep(NamedTuple):
    """Discard whatever is under a prefix, but not these keys: what crashed writers left."""

    prefix: str
    keep: frozenset[str] = frozenset()
    below: int = 0
    """Only what is of a generation below this one; 0: of any. The log of the sweeper's own is being
    written, and one that is higher belongs to its successor, whom it may not know of yet."""

    def takes(self, key: str) -> bool:
        """Whether a key is to be discarded.

        >>> sweep = Sweep("log/", frozenset({"log/1/n1.1/2"}), below=2)
        >>> [sweep.takes(key) for key in ("log/1/n1.1/1", "log/1/n1.1/2", "log/3/n1.1/1")]
        [True, False, False]
        """
        if not key.startswith(self.prefix) or key in self.keep:
            return False
        return not self.below or generation_of(key) < self.below


class Launch(NamedTuple):
    """Start a process for this node under this incarnation."""

    node: NodeId
    incarnation: int
    version: int = 1
    """Of the operator."""


class Ending(Enum):
    """How the life of a machine ends."""

    DISMISSED = "dismissed"
    """A node: it owns nothing any more."""
    FINISHED = "finished"
    """A feeder: its source is at its end, and everything is durable."""
    STOPPED = "stopped"
    """Somebody outside asked for it."""
    REPLACED = "replaced"
    """Another process has its place, or the master will not have it any more."""
    DRIVER_SILENT = "driver silent"
    CHECKPOINT_UNUSABLE = "checkpoint unusable"
    """A record that is needed is missing or broken, or is of something else."""


class Exit(NamedTuple):
    """End this process."""

    ending: Ending
    detail: str
    """One sentence for people; nobody decides by it."""


class News(StrEnum):
    """What a machine has to tell; the value is its name for people, in logs and reports."""

    # --- of migrations; those that end one have the names of its stages
    RESCALING = "rescaling"
    SUPERSEDED = "superseded"
    """By another command."""
    ABORTED = "aborted"
    COMPLETED = "completed"
    ROLLED_BACK = "rolled back"
    # --- of nodes and their tasks
    LOST = "lost"
    STOOD_IN = "stood in"
    """Others have taken the tasks of a lost node, until its successor comes."""
    NOTICED = "noticed"
    """A node was told that it is taken away soon."""
    NEVER_CAME = "never came"
    """A node was launched and did not register."""
    OPERATOR_FAILED = "operator failed"
    STATE_LOST = "state lost"
    STATE_AT_RISK = "state at risk"
    STATE_REFUSED = "state refused"
    COPY_REFUSED = "copy refused"
    # --- of what is durable
    STORE_FAILS = "store fails"
    STORE_WORKS = "store works"
    FENCED = "fenced"
    """A later driver has taken over."""
    REFUSED = "refused"
    """A checkpoint that cannot be used."""
    # --- of micro-batches
    WRITTEN = "written"
    OUTDATED = "outdated"
    """The query has gone back in time."""
    COMMITTED = "committed"
    FAILED = "failed"
    """Rows that were laid by are gone: the batch must be written again."""
    DIFFERS = "differs"
    """A batch was written once more with another number of rows."""


class Tell(NamedTuple):
    """Something for people: a migration began, ended, was aborted; a node was lost."""

    what: News
    facts: dict[str, Any]


Action: TypeAlias = Send | Store | Load | Discard | Sweep | Launch | Exit | Tell
