"""The test suite of franz-go itself, against the broker under judgement.

Its authors run it against Apache Kafka and others: producers, consumers, groups of both protocols,
share groups, transactions, and chains of them that move records exactly once. What needs SASL skips
itself.
"""

import os
import subprocess

import pytest

from tests.support import toolchains

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.2"
RECORDS = 100_000
PASSED_MIN = 140
TIMEOUT_S = 900

pytestmark = pytest.mark.timeout(TIMEOUT_S + 300)


def test_does_franz_go_pass_its_own_tests(bootstrap: str) -> None:
    try:
        folder, tests = toolchains.go_tests(MODULE, VERSION, "pkg/kgo")
    except toolchains.MissingTool as missing:
        pytest.skip(str(missing))
    facts = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_STABLE_FETCH": "true",
    }
    options = ["-test.v", "-test.timeout", f"{TIMEOUT_S}s"]
    done = subprocess.run(
        [str(tests), *options],
        cwd=folder,
        env={**os.environ, **facts},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S + 60,
        check=False,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("--- FAIL", "panic"))]
    assert failed == [], done.stdout[-3000:]
    assert done.returncode == 0, done.stderr[-2000:]
    assert sum(line.startswith("--- PASS") for line in lines) >= PASSED_MIN
