"""What children of the process that forks do, and a program that has them forked as a daemon would."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time

from agents import alive, until
from pyspark import SparkFiles

from meander.spark.cluster import forks


def greet(argument: str, say: forks.Say) -> str:
    say(b"hello ")
    return f"{argument} from {os.getpid()}"


def die(argument: str, say: forks.Say) -> str:
    say(b"last ")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def linger(argument: str, say: forks.Say) -> str:
    with open(argument, "w") as file:
        file.write(f"{os.getpid()} {os.getppid()}")
    time.sleep(600)
    return "never"


def find(argument: str, say: forks.Say) -> str:
    return SparkFiles.get(argument)


def starved(server: int) -> forks.Heard | None:
    """Ask for a child while the process that forks may open nothing more."""
    before = resource.prlimit(server, resource.RLIMIT_NOFILE)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (3, before[1]))
    heard = forks.run("forked:greet", "you")
    resource.prlimit(server, resource.RLIMIT_NOFILE, before)
    return heard


def pids(path: str) -> list[int]:
    """Wait for a child that lingers; gives its pid and that of the process that forks."""

    def there() -> bool:
        return os.path.exists(path) and len(open(path).read().split()) == 2

    assert until(there)
    with open(path) as file:
        return [int(pid) for pid in file.read().split()]


def main(folder: str) -> None:
    assert forks.run("forked:greet", "you") is None, "there is nobody yet"
    forks.open_desk()
    greeted, died = forks.run("forked:greet", "you"), forks.run("forked:die", "")
    SparkFiles._root_directory, SparkFiles._is_running_on_worker = folder, True
    found = forks.run("forked:find", "rows.csv")
    worker = os.fork()
    if worker == 0:
        forks.run("forked:linger", f"{folder}/one")
        os._exit(0)
    child, server = pids(f"{folder}/one")
    hungry, fed, lives = starved(server), forks.run("forked:greet", "you"), alive(child)
    os.kill(child, signal.SIGSTOP)  # it cannot look after itself
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    gone = until(lambda: not alive(child))
    if os.fork() == 0:
        child, server = pids(f"{folder}/two")
        os.kill(server, signal.SIGKILL)
        os._exit(0)
    lost = forks.run("forked:linger", f"{folder}/two")
    child, _ = pids(f"{folder}/two")
    orphaned = not until(lambda: not alive(child))
    os.wait()
    after = forks.run("forked:greet", "you")
    told = (greeted, died, found, hungry, fed, lives, gone, lost, orphaned, after)
    print(json.dumps([repr(x) for x in told]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
