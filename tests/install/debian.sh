#!/bin/sh
# A new user's first minutes on a bare Debian: install a wheel, start a broker, write, look up, read.
#
#     tests/install/debian.sh ROOT WHEEL...
#
# ROOT is a folder made by `debootstrap --variant=minbase bookworm ROOT` (as root), with /proc and
# /dev mounted, in which python3, python3-venv and ca-certificates were installed and no compiler.
# Each wheel gets an environment of its own. Prints what was typed, what came out, and the seconds.
set -eu
root=$1
shift
for wheel in "$@"; do
    cp "$wheel" "$root/tmp/"
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/bash -e -s "/tmp/${wheel##*/}" <<'INSIDE'
wheel=$1
TIMEFORMAT='    (%R s, %U s of CPU)'
run() { echo "\$ $*" >&2; time "$@"; }
cd /tmp && rm -rf user && mkdir user && cd user
run python3 -m venv .venv
run .venv/bin/pip install -q "$wheel"
PATH=$PWD/.venv/bin:$PATH
echo '$ tidelog serve &'
tidelog serve --data-dir data --listen 127.0.0.1:19092 2> log > ready &
broker=$!
trap 'kill $broker 2>/dev/null || true' EXIT
start=$(date +%s%N)
while ! [ -s ready ]; do kill -0 $broker || { cat log; exit 1; }; sleep 0.02; done
echo "    (listening after $(( ($(date +%s%N) - start) / 1000000 )) ms)"
export KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:19092
echo 'high water' | run tidelog produce harbour --timestamp -2h
run tidelog offsets harbour --at -3h
run tidelog consume harbour --from -3h --max 1
seq 200000 > numbers
before=$(awk '{print $14 + $15}' /proc/$broker/stat)
run tidelog produce numbers -q < numbers
echo "    (the broker: $(( $(awk '{print $14 + $15}' /proc/$broker/stat) - before )) ticks of CPU)"
run tidelog consume numbers --from earliest --max 200000 --format '{value}' > back
cmp numbers back && echo 'the same'
kill $broker && wait $broker || true
cat log
INSIDE
done
