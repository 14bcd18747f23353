"""A limit to the processors that a host uses: a control group, of version 1 or 2, as root.

Where the system has no such groups, or not for us to make, that is said (`NoHostsError`); hosts can be
had without.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from meander_lab.errors import NoHostsError

V1: Final = Path("/sys/fs/cgroup/cpu")
V2: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000
REMOVE_S_MAX: Final = 2.0
"""A group is busy until the last of its processes is buried."""


def limit(name: str, cpus: float) -> None:
    """Make a group that may use so many processors.

    Raises:
        NoHostsError: if that cannot be done here.
    """
    quota = round(cpus * PERIOD_US)
    try:
        group = _root() / name
        group.mkdir()
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError as error:
        raise NoHostsError(f"no control group for processors can be made here: {error}") from error


def enter(name: str) -> list[str]:
    """Give what a command begins with so that its process joins a group; nothing without one."""
    group = _group(name)
    if group is None:
        return []
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]


def groups() -> list[str]:
    """Name all groups, ours and others'."""
    try:
        return [folder.name for folder in _root().iterdir() if folder.is_dir()]
    except OSError:
        return []


def remove(name: str) -> None:
    """Take a group away; its processes have been killed."""
    group, end = _group(name), time.monotonic() + REMOVE_S_MAX
    while group is not None and group.exists() and time.monotonic() < end:
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)


def _group(name: str) -> Path | None:
    try:
        group = _root() / name
    except OSError:
        return None
    return group if group.is_dir() else None


def _root() -> Path:
    """Find where groups for processors are.

    Raises:
        OSError: if there are none.
    """
    if (V1 / "cpu.cfs_quota_us").exists():
        return V1
    controllers = (V2 / "cgroup.subtree_control").read_text().split()
    if "cpu" not in controllers:
        raise OSError(f"{V2}/cgroup.subtree_control has no `cpu`")
    return V2
