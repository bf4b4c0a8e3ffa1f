"""Appends and changes of metadata that fail, for a while or for good, of a whole data directory.

The broker of a bucket refuses them when another one has taken the bucket over, and while it could
not renew its lease (`broker.jobs.bucket`). Reads go on.
"""

from collections.abc import Callable, Iterable

from storage.directory.metadata import Metadata
from storage.errors import LogOffline, StorageError
from storage.log.log import Log


class Refusal:
    """What an open directory refuses; its logs are asked for at each call."""

    def __init__(self, metadata: Metadata, logs: Callable[[], Iterable[Log]]) -> None:
        """Refuse nothing."""
        self._metadata = metadata
        self._logs = logs
        self._suspension: StorageError | None = None

    def stop(self, reason: str) -> None:
        """Let every append and every change of metadata fail from now on."""
        self._metadata.refusal = reason
        for log in self._logs():
            if log.offline is None:
                log.offline = log.refusal = LogOffline(log.path, reason)

    def suspend(self, error: StorageError | None) -> None:
        """Let appends and changes of metadata fail with `error`, or none any more after a None.

        A log that refuses for another reason goes on with that. Call it again for logs that were
        made meanwhile.
        """
        former, self._suspension = self._suspension, error
        self._metadata.refusal = None if error is None else str(error)
        for log in self._logs():
            if log.refusal is None or log.refusal is former:
                log.refusal = error
