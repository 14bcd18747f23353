#!/bin/sh
# Make sure that there are promtool and prometheus for the tests of the metrics. Debian's package is
# fetched and unpacked into a folder: nothing is installed, no service is started, no root is needed.
# Without them these tests are skipped, which is no failure: this script always exits 0.
# usage: scripts/prometheus.sh FOLDER
set -eu
folder=${1:?usage: scripts/prometheus.sh FOLDER}

command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1 && exit 0
[ -x "$folder/usr/bin/promtool" ] && exit 0

if command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1; then
    mkdir -p "$folder"
    (cd "$folder" && apt-get download -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 prometheus >/dev/null 2>&1 && dpkg-deb -x prometheus_*.deb .) || true
    rm -f "$folder"/prometheus_*.deb
    [ -x "$folder/usr/bin/promtool" ] && exit 0
fi
echo "there is no Prometheus: the tests of the metrics with one are skipped" >&2
exit 0
