"""Where the broker is: named by the compose file, reached over the network by its service name."""

import os
import time
import urllib.request

import pytest


@pytest.fixture(scope="session")
def bootstrap() -> str:
    return os.environ["TIDELOG_BOOTSTRAP"]


@pytest.fixture(scope="session")
def metrics_url() -> str:
    return os.environ["TIDELOG_METRICS"]


@pytest.fixture(scope="session", autouse=True)
def _ready(metrics_url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{metrics_url}/readyz", timeout=2) as answer:
                assert answer.status == 200
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
