#!/bin/sh
# Make sure that there is a Java for Spark (17 or newer), installing one where that needs no
# question: as root, or with a sudo that asks no password. Otherwise says what to do and exits 2.
# usage: scripts/java.sh [PYTHON]
set -eu
python=${1:-python3}

found() {
    "$python" -c 'from meander.spark.cluster.java import java_home; java_home()' 2>/dev/null
}

found && exit 0

run=""
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then run="sudo -n"; else run="no"; fi
fi
if [ "$run" != no ] && command -v apt-get >/dev/null 2>&1; then
    echo "no Java 17 or newer found: installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    $run apt-get update -qq >/dev/null 2>&1 || true
    for package in openjdk-17-jre-headless default-jre-headless; do
        $run apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 || true
        found && exit 0
    done
fi
"$python" -c '
import sys
from meander.errors import InputError
from meander.spark.cluster.java import java_home
try:
    java_home()
except InputError as error:
    print(f"meander: {error}", file=sys.stderr)
'
exit 2
