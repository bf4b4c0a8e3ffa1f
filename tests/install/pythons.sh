#!/bin/bash
# Does Tidelog install and work with these interpreters? What is committed is tried, not the work tree.
#
#     tests/install/pythons.sh [PYTHON...]          (make pythons PYTHONS="...")
#     TESTS="tests/unit tests/integration" tests/install/pythons.sh python3.14
#
# Without an interpreter named: each of those in pyproject.toml that is found, free-threaded ones too.
# For each: a wheel that must be compiled and one in plain Python, each in an environment
# of its own; a broker, a record produced, its time looked up, and read; `tidelog doctor`. Then the
# tests of TESTS (without it tests/unit; nothing if it is empty) in an editable installation, which
# fetches the packages of the extra `dev`. Prints the seconds; ends with 1 if a step failed.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
work=${WORK:-$checkout/build/pythons}
tests=${TESTS-tests/unit}
# What may not change what is tried.
unset PYTHONPATH PYTHONDONTWRITEBYTECODE TIDELOG_COMPILE
TIMEFORMAT='    (%R s, %U s of CPU)'
failed=0

if [ $# = 0 ]; then
    for version in $(grep -oE 'Python :: 3\.[0-9]+' "$checkout/pyproject.toml" | cut -c11-); do
        for python in "python$version" "python${version}t"; do
            # A name in PATH may lead to no interpreter, as with pyenv.
            if "$python" -c '' 2> /dev/null; then set -- "$@" "$python"; fi
        done
    done
fi
first_minutes() { # PYTHON COMPILE: install and use it in an empty folder
    local home=$work/$name-$2 broker status=0
    rm -rf "$home" && mkdir -p "$home"
    "$1" -m venv "$home/.venv"
    echo "$name: pip install, TIDELOG_COMPILE=$2"
    time TIDELOG_COMPILE=$2 "$home/.venv/bin/pip" install -q --disable-pip-version-check "$tree"
    (
        cd "$home" && PATH=$home/.venv/bin:$PATH
        python - "$2" <<'PYTHON'
import importlib, sys
from tidelog.protocol.extensions import PATHS
files = [importlib.import_module("tidelog." + path.replace("/", ".")).__file__ for path in PATHS]
compiled = sum(not file.endswith(".py") for file in files)
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(f"{sys.version}: {compiled} of {len(files)} modules compiled, GIL {'on' if gil else 'off'}")
sys.exit(compiled != (len(files) if sys.argv[1] == "required" else 0))
PYTHON
        PYTHONWARNINGS=default tidelog serve --data-dir data --listen 127.0.0.1:0 > ready 2> log &
        broker=$!
        trap 'kill $broker 2> kill-log || true; wait $broker || true' EXIT
        while ! [ -s ready ]; do kill -0 $broker || { cat log; exit 1; }; sleep 0.02; done
        KAFKA_BOOTSTRAP_SERVERS=$(grep -oE '127\.0\.0\.1:[0-9]+' ready | head -1)
        export KAFKA_BOOTSTRAP_SERVERS
        echo 'high water' | tidelog produce harbour --timestamp -2h
        tidelog offsets harbour --at -3h
        tidelog consume harbour --from -3h --max 1 | tee read
        grep -q 'high water' read
        # A port of the defaults may be taken on this machine; what is not good is shown.
        tidelog doctor --data-dir data > doctor || true
        grep -E '^python +good' doctor
        grep -v ' good ' doctor
        tidelog man > man
        ! grep -E 'Traceback|DeprecationWarning| ERROR ' log
    ) || status=$?
    return $status
}

for python in "$@"; do
    name=$("$python" -c 'import sys; print("%d.%d.%d%s" % (*sys.version_info[:3], sys.abiflags))')
    tree=$work/$name-tree
    rm -rf "$tree" && mkdir -p "$work" && git clone -q "$checkout" "$tree"
    for compile in required never; do
        # A function behind || would go on after a step that failed.
        set +e
        (set -e; first_minutes "$python" $compile)
        [ $? = 0 ] || { failed=1; echo "$name: FAILED with TIDELOG_COMPILE=$compile"; }
        set -e
        rm -rf "$tree/build"
    done
    [ -n "$tests" ] || continue
    "$python" -m venv "$tree/.venv"
    "$tree/.venv/bin/pip" install -q --disable-pip-version-check -e "$tree[dev]"
    echo "$name: $tests"
    time (cd "$tree" && .venv/bin/python -m pytest -q -p no:cacheprovider -n auto $tests) \
        || { failed=1; echo "$name: FAILED tests"; }
done
exit $failed
