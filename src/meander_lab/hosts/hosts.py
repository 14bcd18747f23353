"""Hosts that are network namespaces on one machine, each with an address, on a switch of their own.

    h1 10.77.0.1 ── eth0 ═══ port1 ┐
    h2 10.77.0.2 ── eth0 ═══ port2 ┼ switch (a bridge, in a namespace without an address)
    h3 10.77.0.3 ── eth0 ═══ port3 ┘

There is no way in or out: the switch has no other cable, and the network of the machine is not
touched. Files and processors are shared.

>>> with hosts(3) as cluster:                                                    # doctest: +SKIP
...     cluster[2].popen(["python", "serve.py"])     # runs on h2
...     cluster[2].unplug(); cluster[2].plug()       # its cable
...     cluster.cut(1, 3); cluster.mend(1, 3)        # nothing that h1 sends reaches h3
...     cluster[3].rate(10.0)                        # its link: 10 Mbit/s each way
...     cluster[3].kill(); cluster[3].start()        # with all that runs there; back without it

Rules
  1. All that there is lies in the kernel, under names that begin with `meander-<pid>-<birth>`, of the
     process that owns them. Nothing is remembered here, so any process may open them by that name.
  2. Who leaves the block, by an exception or Ctrl-C too, leaves nothing behind: no process, no
     namespace. What a process left that was killed with -9, the next one takes away (`sweep`).
  3. A host that is killed falls silent: its cable is unplugged first, so that nobody hears its kernel
     say farewell. Started again, it knows of no connection.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from meander.errors import InputError
from meander_lab.errors import NoHostsError
from meander_lab.hosts import share
from meander_lab.hosts.tools import NAMES, ip, obstacle, owned, owner, rate_order, tc

HOSTS_MAX: Final = 200
NETWORK: Final = "10.77.0"
DEVICE: Final = "eth0"
NOBODY: Final = "02:4d:45:00:ff:ff"
"""An address that no host has: what is sent there is lost, and the sender does not hear of it."""
DEATH_S_MAX: Final = 10.0
"""How long killed processes may take to be gone."""
_COUNT = itertools.count(1)


class Host:
    """One of several hosts."""

    def __init__(self, cluster: str, number: int) -> None:
        """Name it; it need not exist yet."""
        self.number = number
        self.name = f"h{number}"
        self.address = f"{NETWORK}.{number}"
        self.space = f"{cluster}-{self.name}"
        """The name of its namespace."""
        self._switch = f"{cluster}-switch"
        self._port = f"port{number}"

    def __repr__(self) -> str:
        return f"<{self.name}, {self.address}>"

    # ------------------------------------------------------------------ what runs there

    def command(self, order: Sequence[str]) -> list[str]:
        """Give the command that runs another one on this host; the process is the same."""
        return [*share.enter(self.space), "nsenter", f"--net={_path(self.space)}", "--", *order]

    def popen(self, order: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on this host; options as for `subprocess.Popen`."""
        return subprocess.Popen(self.command(order), **options)

    def run(
        self, order: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end, and give what it said."""
        return subprocess.run(
            self.command(order), capture_output=True, text=True, timeout=timeout_s, check=False,
            env=env,
        )  # fmt: skip

    def pids(self) -> list[int]:
        """List the processes that run there."""
        return _pids(self.space)

    # ------------------------------------------------------------------ its cable

    def plug(self) -> None:
        """Put its cable back."""
        ip("-n", self._switch, "link", "set", self._port, "up")

    def unplug(self) -> None:
        """Pull its cable: it loses its carrier, and hears and says nothing."""
        ip("-n", self._switch, "link", "set", self._port, "down")

    @property
    def plugged(self) -> bool:
        """Whether its cable is in."""
        return ",UP" in ip("-n", self._switch, "link", "show", self._port)

    def rate(self, mbit: float | None) -> None:
        """Let its link pass so much a second, each way; None: as much as it can."""
        for space, device in ((self.space, DEVICE), (self._switch, self._port)):
            if mbit is not None:
                tc("-n", space, *rate_order(device, mbit))
            elif "tbf" in tc("-n", space, "qdisc", "show", "dev", device):
                tc("-n", space, "qdisc", "del", "dev", device, "root")

    # ------------------------------------------------------------------ its life

    @property
    def up(self) -> bool:
        """Whether it is there."""
        return _path(self.space).exists()

    def start(self) -> None:
        """Make it, with an address and a cable; nothing runs there."""
        ip("netns", "add", self.space)
        ip("-n", self._switch, "link", "add", self._port, "type", "veth",
           "peer", "name", DEVICE, "netns", self.space)  # fmt: skip
        # The same after a restart: others would go on sending to the old one for half a minute.
        ip("-n", self.space, "link", "set", DEVICE, "address", f"02:4d:45:00:00:{self.number:02x}")
        ip("-n", self.space, "addr", "add", f"{self.address}/24", "dev", DEVICE)
        for device in ("lo", DEVICE):
            ip("-n", self.space, "link", "set", device, "up")
        ip("-n", self._switch, "link", "set", self._port, "master", "switch", "up")

    def kill(self) -> int:
        """End it with all that it runs, without a word to anybody; give how many processes ran."""
        self.unplug()
        count = _kill_all(self.space)
        ip("-n", self._switch, "link", "del", self._port)  # a namespace goes in its own time
        ip("netns", "del", self.space)
        return count


class Hosts:
    """The hosts of one cluster, by number from 1 on."""

    def __init__(self, name: str, count: int) -> None:
        """Open those that were made under a name."""
        self.name = name
        self._hosts = tuple(Host(name, number) for number in range(1, count + 1))

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __getitem__(self, number: int) -> Host:
        if not 1 <= number <= len(self):
            raise IndexError(f"there are hosts 1 to {len(self)}, and not {number}")
        return self._hosts[number - 1]

    def cut(self, sender: int, receiver: int) -> None:
        """Let nothing that one host sends reach another; the way back stays open."""
        self._address(sender, receiver, "replace", "lladdr", NOBODY, "nud", "permanent")

    def mend(self, sender: int, receiver: int) -> None:
        """Undo a cut, if there is one."""
        with suppress(NoHostsError):  # its sender was killed, and knows of no cut
            self._address(sender, receiver, "del")

    def _address(self, sender: int, receiver: int, verb: str, *more: str) -> None:
        """Change what one host knows of the hardware address of another."""
        target = self[receiver].address
        ip("-n", self[sender].space, "neigh", verb, target, "dev", DEVICE, *more)

    def remove(self) -> None:
        """Take everything away: processes, cables, namespaces. Can be called twice."""
        for name in _names():
            if name.startswith(f"{self.name}-"):
                _end(name)


@contextmanager
def hosts(count: int, cpus: float | None = None) -> Iterator[Hosts]:
    """Run hosts while the block lasts.

    Args:
        count: how many.
        cpus: processors that each may use at most, by a control group; None: as many as there are.

    Raises:
        NoHostsError: if there can be none here, or no limit to processors; it says why.
    """
    if not 1 <= count <= HOSTS_MAX:
        raise InputError(f"there can be 1 to {HOSTS_MAX} hosts, not {count}")
    found = obstacle()
    if found is not None:
        raise NoHostsError(found.words)
    sweep()
    made = Hosts(f"{owner()}-{next(_COUNT)}", count)
    atexit.register(made.remove)
    try:
        _build(made, cpus)
        yield made
    finally:
        made.remove()
        atexit.unregister(made.remove)


def _build(made: Hosts, cpus: float | None) -> None:
    switch = f"{made.name}-switch"
    ip("netns", "add", switch)
    ip("-n", switch, "link", "add", "switch", "type", "bridge")
    ip("-n", switch, "link", "set", "switch", "up")
    for host in made:
        host.start()
        if cpus is not None:
            share.limit(host.space, cpus)


def sweep() -> list[str]:
    """Take away what processes have left that are no more; give its names."""
    left = [name for name in _names() if not owned(name)]
    for name in left:
        _end(name)
    return left


def _names() -> list[str]:
    """List what there is of anybody's hosts."""
    spaces = (line.split()[0] for line in ip("netns", "list").splitlines() if line.strip())
    return [name for name in dict.fromkeys([*spaces, *share.groups()]) if NAMES.fullmatch(name)]


def _end(space: str) -> None:
    """Kill all that runs in a namespace, and remove it with its group."""
    try:
        _kill_all(space)
        if _path(space).exists():
            ip("netns", "del", space)
    except NoHostsError:
        if _path(space).exists():  # else another one sweeps at the same time
            raise
    share.remove(space)


def _kill_all(space: str) -> int:
    """Kill all that runs in a namespace but ourselves; give how many processes there were."""
    killed: set[int] = set()
    limit = time.monotonic() + DEATH_S_MAX
    while (left := set(_pids(space)) - {os.getpid()}) and time.monotonic() < limit:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        time.sleep(0.01)
    return len(killed)


def _pids(space: str) -> list[int]:
    if not _path(space).exists():
        return []
    return [int(pid) for pid in ip("netns", "pids", space).split()]


def _path(space: str) -> Path:
    return Path("/run/netns", space)
