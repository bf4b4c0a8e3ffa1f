"""A broker of several workers, and what tests ask of its processes."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.broker import RawClient

PATIENCE_S = 90.0
"""Two workers may wait 10 s each before they start again, one after the other, when it is busy."""


def directory_of(data: Path, worker: int) -> Path:
    """The directory of a worker."""
    return data if worker == 1 else data / f"worker.{worker}"


def pid_of(data: Path, worker: int) -> int:
    """The process of a worker, which writes its id into its lock."""
    return int((directory_of(data, worker) / ".lock").read_text())


def kill(data: Path, worker: int) -> int:
    """End a worker without warning; the id of its process."""
    pid = pid_of(data, worker)
    os.kill(pid, signal.SIGKILL)
    return pid


def wait_for_restart(data: Path, worker: int, former_pid: int) -> None:
    """Return when the worker runs again; whether it accepts clients is another question."""

    def runs_again() -> bool:
        text = (directory_of(data, worker) / ".lock").read_text()
        return text.strip().isdigit() and int(text) != former_pid

    wait_until(runs_again)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when it is so."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, "it took too long"
        time.sleep(0.02)


async def connect(port: int) -> RawClient:
    """A connection to a worker, also to one that restarts."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await RawClient.connect("127.0.0.1", port)
        except OSError:
            assert time.monotonic() < end_s, "nothing listens"
            time.sleep(0.02)


async def metadata_of(client: RawClient, topic: str) -> MetadataResponse:
    """What the worker at the other end says of a topic."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    response: MetadataResponse = await client.request(request, 12)
    return response


async def leaders_of(client: RawClient, topic: str) -> dict[int, int]:
    """The leaders of a topic's partitions."""
    (found,) = (await metadata_of(client, topic)).topics
    return {one.partition_index: one.leader_id for one in found.partitions}
