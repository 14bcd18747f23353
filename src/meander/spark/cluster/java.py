"""Find a Java that Spark can run on, or say exactly what to do.

Looked at in this order: `JAVA_HOME`, the `java` on `PATH`, the usual places. The first that is
Java 17 or newer *and whole* wins: Spark starts every JVM with the module `jdk.incubator.vector`,
which cut-down runtimes lack; they die before they can say why.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from meander.errors import InputError

JAVA_MIN = 17
MODULE_NEEDED = "jdk.incubator.vector"
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdk/*",
)
ADVICE = (
    "install one, for example `apt-get install openjdk-17-jre-headless`, `dnf install "
    "java-17-openjdk-headless` or `brew install openjdk@17`, or set JAVA_HOME to its directory"
)


def java_home() -> Path:
    """Give the home directory of the first Java that will do.

    Raises:
        InputError: when there is none; the message lists what was found and what to do.
    """
    unfit: list[str] = []
    for home in _candidates():
        fault = _fault(home)
        if fault is None:
            return home
        unfit.append(f"{home}: {fault}")
    found = "".join(f"\n  {line}" for line in unfit)
    raise InputError(f"Spark needs Java {JAVA_MIN} or newer and none was found: {ADVICE}{found}")


def _candidates() -> Iterator[Path]:
    """Homes that exist, most wanted first, each once."""
    seen: set[Path] = set()
    for home in _places():
        real = home.resolve()
        if real not in seen and (real / "bin" / "java").is_file():
            seen.add(real)
            yield real


def _places() -> Iterator[Path]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield Path(chosen)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in USUAL_PLACES:
        base = Path(pattern).expanduser()
        yield from sorted(Path(base.anchor).glob(str(base.relative_to(base.anchor))), reverse=True)


def _fault(home: Path) -> str | None:
    """Tell why this Java cannot run Spark; None if it can."""
    facts = _release(home)
    version = parse_version(facts.get("JAVA_VERSION") or _ask_version(home))
    if version is None:
        return "its version cannot be read"
    if version < JAVA_MIN:
        return f"Java {version} is too old"
    if "MODULES" in facts and MODULE_NEEDED not in facts["MODULES"].split():
        return f"a cut-down Java {version} without the module {MODULE_NEEDED}"
    return None


def _release(home: Path) -> dict[str, str]:
    """Read the `release` file that comes with every JDK: KEY="value" lines."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))


def _ask_version(home: Path) -> str:
    command = [str(home / "bin" / "java"), "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    quoted = re.search(r'version "([^"]+)"', done.stderr)
    return quoted.group(1) if quoted else ""


def parse_version(text: str) -> int | None:
    """Read the major version out of what Java calls itself.

    >>> parse_version("17.0.15"), parse_version("1.8.0_402"), parse_version("21"), parse_version("?")
    (17, 8, 21, None)
    """
    number = re.match(r"(?:1\.)?(\d+)", text)
    return int(number.group(1)) if number else None
