"""Chaos on several hosts: a Standalone cluster across them, and harm to cables and whole hosts.

This process and Spark's Master are on the first host; each other one has a Worker. What is done to
processes is done as elsewhere, only less often; and every few seconds something is done to a host. All
of `DEEDS` are done before one comes again, in an order that the seed decides:

    kill       a host dies with all it runs, without a word, and comes back empty some seconds later
    unplug     its cable is pulled, and put back; also that of the driver's host
    cut        what it sends is lost, or what is sent to it, or only on the way to one other host
    slow       its link passes `SLOW_MBIT` each way

One host is harmed at a time, since two would be most of the cluster. The shared folder of checkpoints
stays in reach: storage has a network of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from meander_lab.chaos.campaign import Campaign, ChaosOptions, Say, Victim
from meander_lab.chaos.havoc import HavocDisk, listener
from meander_lab.chaos.load import ChaosApp
from meander_lab.chaos.on_spark import SparkGround, deployed
from meander_lab.hosts.hosts import Host, Hosts
from meander_lab.servers.standalone import StandaloneCluster, across

if TYPE_CHECKING:
    from meander.spark.cluster.session import Session
    from meander.spark.deploy.deploy import SparkOperator

CORES = 8
"""Slots of each Worker: two of three must be enough for nodes, state servers and feeders."""
DEEDS = ("kill", "unplug", "cut", "kill", "unplug the driver", "slow")
EVERY_S = (5.0, 9.0)
"""From the end of one to the next."""
DOWN_S = (3.0, 8.0)
PARTITION_S = (1.0, 4.0, 8.0, 15.0)
"""The last is longer than a lease, with its margin."""
SLOW_S, SLOW_MBIT = (3.0, 8.0), 4.0
KILLS_PER_MINUTE = 12.0
"""Of processes, unless the caller has said: a host that is lost takes longer to make up for."""


class HostsGround(SparkGround):
    """A deployment on Spark across hosts."""

    def __init__(
        self, session: tuple[Session, SparkOperator], app: ChaosApp, hosts: Hosts,
        cluster: StandaloneCluster,
    ) -> None:  # fmt: skip
        super().__init__(*session, app)
        self.hosts, self.cluster = hosts, cluster

    def find(self, address: str) -> int | None:
        """Find the process that listens on `host:port`, on that host."""
        where, _, port = address.rpartition(":")
        pids = (host.pids() for host in self.hosts if host.address == where and host.up)
        return next((listener(int(port), found) for found in pids), None)


@contextmanager
def hosts_ground(
    hosts: Hosts, app: ChaosApp, disk: HavocDisk, nodes_max: int
) -> Iterator[HostsGround]:
    """Start a cluster across hosts, and deploy there; this process is on the first of them."""
    first = hosts[1].address
    os.environ["SPARK_LOCAL_IP"] = first  # of the driver's JVM
    with (
        across(hosts, CORES) as cluster,
        deployed(cluster.master, app, disk, nodes_max, cluster.session, first) as session,
    ):
        yield HostsGround(session, app, hosts, cluster)


class HostsCampaign(Campaign):
    """One run of chaos that harms hosts as well."""

    def __init__(
        self, ground: HostsGround, app: ChaosApp, disk: HavocDisk, wish: ChaosOptions, say: Say
    ) -> None:
        if wish.kills_per_minute is None:
            wish = wish._replace(kills_per_minute=KILLS_PER_MINUTE)
        super().__init__(ground, app, disk, wish, say)
        self.hosts, self.cluster = ground.hosts, ground.cluster
        self._bag: list[str] = []
        """What has still to be done before `DEEDS` begin anew."""
        self._next_at = time.monotonic() + 2.0
        self._undo: Callable[[], None] | None = None
        """Ends what is being done to a host."""
        self._undo_at = 0.0

    def _tend(self) -> None:
        """Harm a host when it is time, and let it go on when that is over."""
        now = time.monotonic()
        if self._undo is not None and now >= self._undo_at:
            self._put_right()
        elif self._undo is None and now >= self._next_at:
            if not self._bag:
                self._bag = self._chance.sample(DEEDS, len(DEEDS))
            self._harm_host(self._bag.pop())
        super()._tend()

    def _relent(self) -> None:
        self._put_right()
        super()._relent()

    def _put_right(self) -> None:
        if self._undo is not None:
            undo, self._undo = self._undo, None
            undo()
            self._next_at = time.monotonic() + self._chance.uniform(*EVERY_S)

    def _harm_host(self, deed: str) -> None:
        host = self.hosts[self._chance.randint(2, len(self.hosts))]
        if deed == "kill":
            self._kill_host(host)
        elif deed == "slow":
            seconds = self._chance.uniform(*SLOW_S)
            host.rate(SLOW_MBIT)
            self._until(seconds, lambda: host.rate(None))
            self._note(
                "slow_links", f"slow {host.name} down to {SLOW_MBIT} Mbit/s for {seconds:.1f} s"
            )
        elif deed == "cut":
            self._cut_host(host)
        else:
            self._unplug(host if deed == "unplug" else self.hosts[1])

    def _kill_host(self, host: Host) -> None:
        seconds = self._chance.uniform(*DOWN_S)
        there = [v for v in self._victims("node") if self._where(v) == host.address]
        self._losing(there, f"kill {host.name}")
        self.recoveries.stands(self._lease_s())
        count = host.kill()

        def revive() -> None:
            host.start()
            self.cluster.start_worker(host.address)
            self.say(f"{host.name} is back")

        self._until(seconds, revive)
        text = f"kill {host.name} with {count} processes for {seconds:.1f} s"
        self._note("host_kills", text)

    def _unplug(self, host: Host) -> None:
        seconds = self._chance.choice(PARTITION_S)
        host.unplug()
        self._partition(seconds, host.plug, f"pull the cable of {host.name} for {seconds} s")

    def _cut_host(self, host: Host) -> None:
        seconds, others = self._chance.choice(PARTITION_S), set(range(1, len(self.hosts) + 1))
        others.remove(host.number)
        one = self._chance.choice(sorted(others))
        pairs, text = self._chance.choice((
            ([(host.number, other) for other in others], f"let nobody hear {host.name}"),
            ([(other, host.number) for other in others], f"let {host.name} hear nobody"),
            ([(host.number, one)], f"let h{one} not hear {host.name}"),
            ([(one, host.number)], f"let {host.name} not hear h{one}"),
        ))  # fmt: skip
        for pair in pairs:
            self.hosts.cut(*pair)

        def mend() -> None:
            for pair in pairs:
                self.hosts.mend(*pair)

        self._partition(seconds, mend, f"{text} for {seconds} s")

    def _partition(self, seconds: float, undo: Callable[[], None], text: str) -> None:
        self.recoveries.stands(seconds + self._lease_s())
        self._until(seconds, undo)
        self._note("partitions", text)

    def _until(self, seconds: float, undo: Callable[[], None]) -> None:
        self._undo, self._undo_at = undo, time.monotonic() + seconds

    def _lease_s(self) -> float:
        settings = self.driver.settings
        return settings.lease_s * settings.lease_margin

    def _where(self, victim: Victim) -> str:
        address = next(
            a for (n, i, a) in self._processes if (n, i) == (victim.name, victim.incarnation)
        )
        return address.rpartition(":")[0]

    def _report(self, *found: Any) -> dict[str, Any]:
        counts = {name: self.done[name] for name in ("host_kills", "partitions", "slow_links")}
        return {**super()._report(*found), "hosts": len(self.hosts), **counts}
