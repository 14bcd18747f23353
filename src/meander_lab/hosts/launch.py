"""Nodes as processes on several hosts, without Spark: a nursery on each, and a driver on the first.

For measurements where links decide and a cluster's JVMs would only be in the way: everything that
nodes, state servers, feeders and the driver say to each other crosses the hosts' links. Nodes are
spread evenly over all hosts but the first; a state server stands where its nodes are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from meander.errors import InputError
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.process.spec import ProcessExit, ProcessSpec
from meander_lab.hosts.hosts import Host, Hosts


class HostNursery(WarmLauncher):
    """The nursery of one host."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host

    def command(self) -> Sequence[str]:
        """Start it on its host."""
        return self.host.command(super().command())


class HostsLauncher:
    """Starts processes on hosts. A context manager: leaving it ends the nurseries."""

    def __init__(self, hosts: Hosts) -> None:
        """Prepare; this process is on the first host.

        Raises:
            InputError: if there is no other.
        """
        if len(hosts) < 2:
            raise InputError("nodes on hosts need two at least: the first has the driver")
        self._nurseries = {host.address: HostNursery(host) for host in list(hosts)[1:]}
        self._where: dict[tuple[str, int], str] = {}
        """The host of each process that runs, by name and incarnation."""
        self._nodes: Counter[str] = Counter()
        """How many nodes run on each host."""
        self._ended: Callable[[ProcessExit], None] = lambda _: None

    def __enter__(self) -> HostsLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        for nursery in self._nurseries.values():
            nursery.end()

    def pickle(self, value: object, what: str) -> bytes:
        """Write it as any of them does."""
        return next(iter(self._nurseries.values())).pickle(value, what)

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Start the nurseries, if there are none; they warm up while the caller goes on."""
        self._ended = ended
        for nursery in self._nurseries.values():
            nursery.start(self._end)

    def launch(self, spec: ProcessSpec) -> None:
        """Have a process forked: on the host it is meant for, else where there are the fewest nodes."""
        host = spec.host if spec.host in self._nurseries else min(self._nurseries, key=self._load)
        self._where[spec.name, spec.incarnation] = host
        self._nodes[host] += spec.kind == "node"
        self._nurseries[host].launch(spec)

    def cancel(self, name: str, incarnation: int) -> None:
        """Have a process killed."""
        host = self._where.get((name, incarnation))
        if host is not None:
            self._nurseries[host].cancel(name, incarnation)

    def room(self) -> int | None:
        """Tell how many more can be started: hosts have no slots to count."""
        return None

    def avoid(self, host: str) -> None:
        """Refuse: nobody is taken away here."""
        raise InputError(f"hosts stay as they are here: nobody can leave {host}")

    def close(self, patience_s: float) -> None:
        """Kill what is left of a deployment, and wait for it; the nurseries stay."""
        end = time.monotonic() + patience_s
        for nursery in self._nurseries.values():
            nursery.close(max(0.0, end - time.monotonic()))

    def _load(self, host: str) -> tuple[int, str]:
        return self._nodes[host], host

    def _end(self, ended: ProcessExit) -> None:
        host = self._where.pop((ended.name, ended.incarnation), None)
        if host is not None:
            self._nodes[host] -= ended.kind == "node"
        self._ended(ended)
