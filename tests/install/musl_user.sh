#!/bin/sh
# What musl.sh types in its root directory: install WHAT, serve, write, look up, read, with TLS too.
set -eu
what=$1
run() { echo "\$ $*" >&2; time -f '    (%e s, %U s of CPU)' "$@"; }
fail() { echo "FAILED: $*"; cat log; exit 1; }
serve() { # OPTIONS: a broker in the background, until it listens
    echo "\$ tidelog serve $*"
    : > ready
    tidelog serve --data-dir data --listen 127.0.0.1:$port "$@" > ready 2> log &
    broker=$!
    while ! [ -s ready ]; do kill -0 $broker || fail serve; sleep 0.05; done
    cat ready
}
stop() { kill "$1" $broker; wait $broker || true; }
trap 'kill -9 $broker 2> kill-log || true' EXIT
broker=999999999

cd /tmp && rm -rf user && mkdir user && cd user
run python3 -m venv .venv
run .venv/bin/pip install -q "$what"
PATH=$PWD/.venv/bin:$PATH
pip check
python -c 'import platform, sys; print(platform.platform(), sys.version)'
port=$(python -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
export KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:$port
run tidelog version
serve
echo 'high water' | run tidelog produce harbour --timestamp -2h
run tidelog offsets harbour --at -3h
run tidelog consume harbour --from -3h --max 1 | tee read
grep -q 'high water' read || fail 'what was read'

seq 200000 > numbers
before=$(awk '{print $14 + $15}' /proc/$broker/stat)
run tidelog produce numbers -q < numbers
echo "    (the broker: $(( $(awk '{print $14 + $15}' /proc/$broker/stat) - before )) ticks of CPU)"
run tidelog consume numbers --from earliest --max 200000 --format '{value}' > back
cmp numbers back || fail 'the numbers'
seq 2000 > few
for codec in none gzip snappy lz4 zstd; do
    tidelog produce "with-$codec" -q -z $codec < few
    tidelog consume "with-$codec" --from earliest --exit-at-end --format '{value}' > back
    cmp few back || fail "$codec"
done
echo 'five codecs: the same'

echo '$ kill -9'
stop -9
serve
tidelog consume numbers --from earliest --max 200000 --format '{value}' > back
cmp numbers back || fail 'the numbers after kill -9'
cat > first.py <<PYTHON
import asyncio
import sys

from tidelog import Consumer, Producer


async def main() -> None:
    async with Producer("127.0.0.1:$port") as producer:
        await producer.send("tides", b"low water")
    async with Consumer(
        "tides", bootstrap="127.0.0.1:$port", group_id="pilots", start="earliest"
    ) as consumer:
        async for record in consumer:
            print(record.time, record.value)
            break


asyncio.run(main())
PYTHON
run python first.py
tidelog group describe pilots
stop -TERM
run tidelog fsck data
tidelog doctor --data-dir data || true

serve --secure
export TIDELOG_COMMAND_CONFIG=data/client.properties
echo 'over TLS' | run tidelog produce secured
run tidelog consume secured --from earliest --max 1 | tee read
grep -q 'over TLS' read || fail 'what was read over TLS'
stop -TERM
! grep -E 'Traceback| ERROR ' log || fail 'the log'
du -sh .venv
