"""The list of what runs on this machine for this user: one file per deployment, for `meander ls`.

A file holds the address and the credentials of a deployment, so only its owner may read it: it is made
with mode 0600 in a folder with mode 0700, and one that others can read is refused. It is removed when
the deployment stops; one whose process was killed is found to be stale by whoever looks.

The folder is `MEANDER_RUNS` if that is set (empty: nothing is written), else `meander` in
`XDG_RUNTIME_DIR`, else `~/.local/state/meander`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from meander.errors import InputError
from meander.runtime.wire.credentials import Credentials

log = logging.getLogger(__name__)

VARIABLE: Final = "MEANDER_RUNS"


@dataclass(frozen=True)
class Run:
    """A deployment, as its file tells of it."""

    run: str
    operator: str
    address: str
    pid: int
    host: str
    started_s: float
    credentials: str = field(repr=False)
    dashboard: str = field(default="", repr=False)
    """The link of its page; empty: it has none."""

    @property
    def alive(self) -> bool:
        """Whether its process may be there: of another host that is not known."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def folder() -> Path | None:
    """Tell where the files are; None: nowhere."""
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE]) if os.environ[VARIABLE] else None
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "meander"
    with suppress(RuntimeError):  # a user without a home
        return Path.home() / ".local" / "state" / "meander"
    return None


def looked_in() -> str:
    """Say where the list is, for whoever misses something on it."""
    where = folder()
    return (
        f"${VARIABLE} is empty: nothing is listed" if where is None else f"the list is in {where}"
    )


def enter(run: str, operator: str, address: str, credentials: Credentials, page: str = "") -> None:
    """Put a deployment on the list; where that cannot be, it is only missing there."""
    where = folder()
    if where is None:
        return
    told = Run(run, operator, address, os.getpid(), socket.gethostname(), time.time(),
               credentials.json(), page)  # fmt: skip
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if where.stat().st_uid != os.getuid() or where.stat().st_mode & 0o077:
            raise PermissionError(f"{where} is open to others: chmod 700")
        file = os.open(_file(where, run), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            json.dump(asdict(told), opened)
    except OSError as error:
        log.info("this deployment is not on the list of `meander ls`: %s", error)


def leave(run: str) -> None:
    """Take a deployment off the list."""
    where = folder()
    if where is not None:
        with suppress(OSError):
            _file(where, run).unlink()


def _file(where: Path, run: str) -> Path:
    return where / f"{run}.json"


def listed() -> list[Run]:
    """Give all deployments on the list, the oldest first; those whose process has died are struck."""
    where, found = folder(), list[Run]()
    if where is None or not where.is_dir():
        return found
    for file in sorted(where.glob("*.json")):
        told = _read(file)
        if told is not None and told.alive:
            found.append(told)
        elif told is not None:
            leave(told.run)
    return sorted(found, key=lambda it: it.started_s)


def _read(file: Path) -> Run | None:
    """Read one file; None: it is no such file, or was removed."""
    try:
        status = file.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            log.warning("%s can be read by others: it is not used", file)
            return None
        return Run(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def find(name: str | None) -> Run:
    """Find a deployment by its address, its operator or the beginning of its run; None: the only one.

    Raises:
        InputError: if there is none, or several.
    """
    runs = listed()
    if name is not None:
        runs = [r for r in runs if name in (r.address, r.operator) or r.run.startswith(name)]
    if len(runs) == 1:
        return runs[0]
    wanted = "" if name is None else f" called {name!r}"
    if not runs:
        raise InputError(
            f"no deployment{wanted} runs here for this user: see `meander ls` ({looked_in()})"
        )
    several = ", ".join(f"{r.address} ({r.operator})" for r in runs[:5])
    raise InputError(f"{len(runs)} deployments{wanted} run here: name one of {several}")
