"""What a broker with an object store has more than others, made together.

The reads of requests, the writer of the bucket's journal and tails, and the uploads. No request is
made to the store here. A broker without one does not load this module.
"""

import random
from typing import NamedTuple

from broker.clocks.clock import Clock
from broker.errors import StartError
from broker.fetch.waiters import FetchWaiters
from broker.group_commit import GroupCommit
from broker.jobs.bucket import BucketWriter
from broker.jobs.tiering import Tiering
from broker.metrics import Metrics
from broker.remote.reads import RemoteReads
from broker.space import SpaceGuard
from broker.threads import Threads
from broker.topics.registry import is_internal
from config import BrokerConfig
from storage.directory.data_dir import DataDir
from storage.remote.engine import BadStoreUrl, open_store
from storage.remote.object_store import ObjectStore


class StoreParts(NamedTuple):
    """The parts, each of which uses threads of its own."""

    reads: RemoteReads
    bucket: BucketWriter | None
    tiering: Tiering | None


def configured_store(config: BrokerConfig, cluster_id: str) -> ObjectStore:
    """The store of `remote.storage.url`. Raises StartError."""
    url = config.remote_storage_url
    try:
        return open_store(url, cluster_id)
    except BadStoreUrl as error:
        raise StartError(
            f"remote.storage.url={url} cannot be used: {error}", "mend that and start again"
        ) from error


def serve_store(
    store: ObjectStore,
    data_dir: DataDir,
    *,
    is_standby: bool,
    group_commit: GroupCommit,
    space: SpaceGuard,
    fetch_waiters: FetchWaiters,
    clock: Clock,
    live: Clock,
    metrics: Metrics,
    threads: Threads,
    source: random.Random,
) -> StoreParts:
    """The parts for `store`; `clock` may be settable, `live` never is. A standby only reads."""
    reads = RemoteReads(store, threads.downloads, live, metrics.remote)
    if is_standby:
        return StoreParts(reads, None, None)
    bucket = BucketWriter(
        data_dir,
        store,
        group_commit=group_commit,
        live=live,
        metrics=metrics.remote,
        threads=threads.bucket,
        random=source,
        fetch_waiters=fetch_waiters,
        is_internal=is_internal,
        lease_ms=data_dir.broker_config.remote_lease_ms,
    )
    tiering = Tiering(
        data_dir,
        store,
        bucket,
        group_commit=group_commit,
        space=space,
        clock=clock,
        live=live,
        metrics=metrics.remote,
        threads=threads.uploads,
        disk_threads=threads.jobs,
        random=source,
    )
    return StoreParts(reads, bucket, tiering)
