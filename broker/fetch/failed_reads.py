"""Reads that the disk refused, or that met bytes which were never written.

The client gets KAFKA_STORAGE_ERROR and tries again. The operator learns of it here: a line for the
first failure in each place, and `tidelog_failed_reads_total` for all of them. A start finds much of
the damage as well (`storage.recovery`), but no start reads whole logs.
"""

import logging

from broker.metrics import Metrics
from storage.errors import StorageFailed

logger = logging.getLogger("tidelog.broker.fetch.failed_reads")


def note_failed_read(metrics: Metrics, error: Exception) -> None:
    """Count `error` and log it once for its place, if a read of the disk ended with it.

    The other subclasses of StorageFailed are states of a log, which are reported where they begin.
    """
    if not isinstance(error, StorageFailed) or error.operation != "read":
        return
    is_known = error.path in metrics.failed_reads
    metrics.failed_reads[error.path] += 1
    if not is_known:
        logger.error(
            "%s. Clients get KAFKA_STORAGE_ERROR for these records: check the disk, stop the "
            "broker and run 'tidelog fsck' to see what is damaged and what can be kept.",
            error,
        )
