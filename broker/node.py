"""The composition of a broker: its parts, and the order in which they start and stop.

    start                                        stop
    1 listeners are bound, none listens yet      1 stop the background jobs, close listeners
    2 data directory: lock, recover, open        2 answer what is parked, let requests finish
    3 group commit, topics, coordinators         3 cut what is left, stop coordinators
    4 metrics port                               4 group commit syncs what is dirty
    5 clients are accepted, jobs begin           5 metrics port; clean marker, end of threads

Ports come first: a start that fails on a taken port has touched no directory.

This module builds every part and hands it its collaborators; no part looks anything up by itself. A
start that fails half-way undoes its steps, so the directory is unlocked and no port stays taken.
"""

import asyncio
import contextlib
import dataclasses
import logging
import random
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.clocks.clock import Clock, SystemClock
from broker.clocks.settable_clock import SettableClock
from broker.clocks.trusted_clock import TrustedClock
from broker.errors import DataDirUnusable, StartError
from broker.fetch.sessions import FetchSessions
from broker.fetch.waiters import FetchWaiters
from broker.group_commit import GroupCommit
from broker.groups.coordinator import GroupCoordinator
from broker.groups.internal_topic import CoordinatorServices
from broker.groups.offsets.lag import GroupLag
from broker.jobs.certificates import CertificateWatch
from broker.jobs.identity_keys import IdentityKeysWatch
from broker.jobs.jobs import BackgroundJobs
from broker.jobs.scheduler import JobScheduler
from broker.metrics import Metrics
from broker.net.acceptor import Acceptor
from broker.net.addresses import (
    ReadyInfo,
    address_error,
    address_for_clients,
    addresses_for_clients,
    bound_metrics_socket,
    bound_socket,
)
from broker.net.connection import Connections
from broker.net.dispatch import Dispatcher
from broker.net.fetch_lane import FetchLane
from broker.net.lane_connection import ClientConnection
from broker.net.produce_lane import ProduceLane
from broker.net.receive import SCRATCH
from broker.operator.exporter import BrokerCollector, render
from broker.operator.http import Command, MetricsServer
from broker.operator.pages import load_port, pages
from broker.operator.port_access import PortAccess
from broker.quotas.accepting import AcceptRates
from broker.quotas.throttle import windows_of
from broker.requests.context import Context, Endpoint
from broker.security.service import ListenerGuard, Security
from broker.security.tls.contexts import TlsUnusable
from broker.space import SpaceGuard
from broker.telemetry.service import Telemetry
from broker.threads import Threads
from broker.topics.registry import TopicRegistry
from broker.transactions.coordinator import TransactionCoordinator
from broker.warm_up import WARM_UP_AFTER_MS, warm_up
from config import BrokerConfig, ConfigErrors, Listener, plan_reload, with_dynamic
from storage.directory.clock_file import write_clock
from storage.directory.data_dir import DataDir, Topic
from storage.disk.files import Files, RealFiles
from storage.errors import DataDirError, StorageError
from storage.log.flush import FlushTicket

if TYPE_CHECKING:  # loaded where a setting asks for them
    from broker.faults.requests import RequestFaults
    from broker.jobs.bucket import BucketWriter
    from broker.jobs.standby import Opened, Standby
    from broker.jobs.tiering import Tiering
    from broker.remote.reads import RemoteReads
    from broker.workers.first import FirstWorker
    from broker.workers.further import FurtherWorker
    from broker.workers.link import Message
    from storage.remote.object_store import ObjectStore

logger = logging.getLogger("tidelog.broker.node")

STOP_GRACE_S = 5.0
"""The time that requests have to finish once the stop has begun."""

SETTLE_S = 5.0
"""How long a change of the settable clock waits for the disk."""


class Broker:
    """One broker in this process. `start` once, `stop` once, both in the same event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        source: random.Random | None = None,
        store: "ObjectStore | None" = None,
        first: "FirstWorker | None" = None,
        further: "FurtherWorker | None" = None,
    ) -> None:
        """Prepare; `start` is the first to touch anything. `store` replaces the configured one.

        `first` or `further` is this process's part when there are several workers.
        """
        self._first = first
        self._further = further
        self.config = self._given = config
        self.clock = clock or SystemClock()
        self.live = clock.live if isinstance(clock, SettableClock) else self.clock
        self.metrics = Metrics()
        self._files = files or RealFiles()
        self._store = store
        self._random = source or random.Random()
        self._stack = contextlib.AsyncExitStack()
        self._servers: list[Acceptor] = []
        self._guards: dict[str, ListenerGuard] = {}
        self.certificates: CertificateWatch
        self.identity_keys: IdentityKeysWatch
        self._dispatchers: dict[str, Dispatcher] = {}
        self._accepting: set[asyncio.Task[Any]] = set()
        self._is_ready = False
        self.warm = asyncio.Event()
        """Set when the code for the first requests is loaded."""

        self._threads = Threads()
        self.connections = Connections(config, self._threads.side)
        self.fetch_waiters = FetchWaiters(self.live)
        self.group_commit = GroupCommit(
            self.fetch_waiters, self.metrics.commits, self._threads.sync
        )
        self.jobs = JobScheduler(self.live, self._random, self.metrics)
        self.data_dir: DataDir
        self.time: TrustedClock
        self.space: SpaceGuard
        self.topics: TopicRegistry
        self.telemetry: Telemetry
        self.groups: GroupCoordinator
        self.group_lag: GroupLag
        self.transactions: TransactionCoordinator
        self.security: Security
        self.remote: RemoteReads | None = None
        self.bucket: BucketWriter | None = None
        self._tiering: Tiering | None = None
        self._opened: Opened | None = None
        self.standby: Standby | None = None
        self.faults: RequestFaults | None = None

    async def start(self) -> ReadyInfo:
        """Open everything; clients are accepted when this returns.

        Raises:
            StartError: one sentence for the operator; everything is closed again.
        """
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def reload(self, fresh: BrokerConfig | None) -> None:
        """Read files again, then apply what may change while the broker runs.

        `fresh` is None if the settings are unreadable. Those made through the protocol still win.
        The log names what needs a restart, and what is unacceptable; then nothing changes.
        """
        self.security.audit.reopen()
        await self.certificates.reload_all()
        await self.identity_keys.reload_all()
        if fresh is None:
            return
        plan = plan_reload(self.topics.broker_config, self._given, fresh)
        for warning in plan.warnings:
            logger.warning("%s", warning)
        try:
            await self.topics.make(self._apply(plan.config))
        except (ConfigErrors, TlsUnusable) as error:
            logger.error("the configuration is not reloaded: %s", error)
            return
        self.security.audit.reloaded(", ".join(plan.changed) or "no setting has changed")

    async def _apply(self, config: BrokerConfig) -> None:
        """Put settings in force that were read again, with what was set at run time on top."""
        merged = with_dynamic(config, self.topics.broker_overrides)
        async with self.security.tls.tried(merged) as put_in_force:
            self.topics.reload(config)
            put_in_force()

    async def stop(self) -> None:
        """Finish the requests, sync, and leave a directory that needs no recovery."""
        self._is_ready = False
        logger.info("stopping")
        await self._stack.aclose()
        logger.info("stopped")

    async def _start(self) -> ReadyInfo:
        if self.config.workers > 1 and self._first is None and self._further is None:
            raise StartError(
                f"workers={self.config.workers} needs several processes, and this is one",
                "start it with 'tidelog serve', or set workers=1",
            )
        sockets = [(listener, self._bind(listener)) for listener in self.config.listeners]
        metrics_socket = self._bind_metrics()
        self._stack.callback(self._threads.close)
        await self._open_data_dir(sockets)
        refused = self.data_dir.overrides_refused
        if refused is not None and refused.has_reference:  # what is below may let more clients in
            raise StartError(f"a setting made at run time: {refused}", "then start again")
        self._open_store()
        self.security = Security(
            self.config, self.data_dir, self.live, self.metrics, self._threads.audit
        )
        self._stack.callback(self.security.audit.close)
        self.connections.on_refused = self.security.audit.connection_refused
        self.connections.room.config = lambda: self.topics.broker_config
        self.telemetry = Telemetry(
            self.data_dir, self.config.telemetry_max_bytes, self.live, self._random
        )
        if self.security.access is not None:
            self.security.access.source_of = self.topics.windows.source_name
        self._open_guards()
        if self.bucket is not None:
            await self.bucket.open_lease()
        finish = self.group_commit.drain if self.bucket is None else self.bucket.finish
        self._stack.push_async_callback(finish)
        services = CoordinatorServices(
            config=self.config,
            clock=self.clock,
            sessions=self.clock.sessions if isinstance(self.clock, SettableClock) else self.clock,
            time=self.time,
            random=self._random,
            topics=self.topics,
            group_commit=self.group_commit,
            is_standby=self._opened is not None,
            share_states=None if self._further is None else self._further.share_states,
        )
        self.groups = GroupCoordinator(services)
        self.group_lag = GroupLag(self.topics, self.groups.offsets.table, self.clock.wall_ms)
        await self._start_coordinators(services)
        context = self._context(sockets[0][0], sockets[0][1])
        if metrics_socket is not None:
            await self._start_metrics(context, metrics_socket)
        self._schedule_jobs()
        self._stack.push_async_callback(self._finish_requests)
        rates = self._accept_rates()
        for listener, bound in sockets:
            self._listen(context, listener, bound, rates)
        if self._first is not None:
            self._first.serve(self.transactions, self.groups.shares.states, self._accept_forwarded)
        self.jobs.start(self.config.log_initial_task_delay_ms)
        self._stack.push_async_callback(self.jobs.stop)
        self._is_ready = True
        self.live.call_later(WARM_UP_AFTER_MS, self._begin_warm_up)
        for notice in (*self.config.notices, *self.data_dir.notices):
            logger.warning("%s", notice)
        return ReadyInfo(
            host=sockets[0][0].host or context.endpoint.host,
            port=int(sockets[0][1].getsockname()[1]),
            metrics_port=None if metrics_socket is None else metrics_socket.getsockname()[1],
            node_id=context.endpoint.node_id,
            cluster_id=context.cluster_id,
            data_dir=self.data_dir.path,
            ports={listener.name: bound.getsockname()[1] for listener, bound in sockets},
            addresses=addresses_for_clients(sockets, self.config),
        )

    def _open_guards(self) -> None:
        """Who is asked on which listener, and what is read again while the broker runs.

        Key stores that were set at run time count from here on.
        """
        self._guards = self.security.open_guards(
            self.topics.broker_config, self.clock.wall_ms, self._threads.jobs
        )
        self.certificates = CertificateWatch(self.security.tls, self.clock.wall_ms)
        self.identity_keys = IdentityKeysWatch(
            {
                name: guard.identity_keys
                for name, guard in self._guards.items()
                if guard.identity_keys is not None
            },
            self.clock.monotonic_ms,
            self._threads.jobs,
        )

    async def _start_coordinators(self, services: CoordinatorServices) -> None:
        """Start them in worker 1, which has all groups and transactions; the others ask it."""
        if self._further is not None:
            from broker.workers.further import FollowingTransactions

            transactions = FollowingTransactions(services, self.groups, self._further)
            self.transactions = transactions
            self._stack.push_async_callback(self._further.close)
            shares = self.groups.shares.partitions
            await self._further.begin(self.topics, self.security, transactions, shares)
            return
        self.transactions = TransactionCoordinator(services, self.groups)
        if self._opened is not None:
            from broker.jobs.standby import Standby

            self.standby = Standby(
                self._opened,
                services,
                self.groups,
                self.security,
                fetch_waiters=self.fetch_waiters,
                live=self.live,
                metrics=self.metrics.remote,
                threads=self._threads.bucket,
            )
            self._stack.callback(self.groups.stop)
            return
        try:
            await self.groups.start()
            if self._first is not None:
                self._stack.callback(self._first.close)
                await self._first.open()
            await self.transactions.start()
        except StorageError as error:
            raise DataDirUnusable(
                str(error), "repair or remove that directory, or start on another one"
            ) from error
        self._stack.callback(self.groups.stop)

    async def _open_data_dir(self, sockets: list[tuple[Listener, socket.socket]]) -> None:
        try:
            self._restore_clock()
            if self._further is not None:
                addresses = {
                    it.name: address_for_clients(it, bound, self.config) for it, bound in sockets
                }
                self.data_dir = await self._further.open_data_dir(
                    self.config, addresses, files=self._files, now_ms=self.clock.wall_ms()
                )
            elif opened := await self._open_standby():
                self.data_dir, self._store, _ = self._opened = opened
            else:
                self.data_dir = DataDir.open(
                    self.config.data_dir,
                    files=self._files,
                    broker_config=self.config,
                    now_ms=self.clock.wall_ms(),
                    before_logs=None if self._first is None else self._first.begin,
                )
        except DataDirError as error:
            raise DataDirUnusable(str(error), "") from error
        self._stack.callback(self._close_data_dir)
        self._save_clock()
        self.space = SpaceGuard(self.data_dir.path, self.config.log_reserved_bytes)
        self.topics = TopicRegistry(
            self.data_dir,
            config=self.config,
            clock=self.clock,
            threads=self._threads.control,
            peers=self._first,
        )
        self.time = TrustedClock(
            self.clock,
            self.metrics,
            hold_ms=self.config.log_clock_trust_delay_ms,
            newest_append_ms=(
                -1  # A clock that is set on purpose may start at any time.
                if isinstance(self.clock, SettableClock)
                else max((log.newest_append_ms for log in self.topics.logs()), default=-1)
            ),
        )
        self.topics.when_deleted(self._topic_deleted)
        for log in self.topics.logs():
            if log.quarantine is not None:
                logger.error("%s-%d is offline: %s", log.topic, log.partition, log.offline_reason)
        self._stack.push_async_callback(self.topics.finish)
        self._stack.callback(self._threads.side.close)

    async def _open_standby(self) -> "Opened | None":
        if not self.config.remote_standby_enable:
            return None
        from broker.jobs.standby import open_standby

        now_ms = self.clock.wall_ms()
        return await open_standby(self.config, self._files, now_ms, self._threads.control)

    def _open_store(self) -> None:
        """Prepare reads and uploads of the object store; no request is made."""
        if self._store is None and not self.config.remote_storage_url:
            logs = list(self.topics.logs())
            if any(log.segments.first.remote or log.config.remote_acks_enable for log in logs):
                from broker.remote.reads import report_no_store

                report_no_store(logs)
            return
        from broker.jobs.object_store import configured_store, serve_store

        self.remote, self.bucket, self._tiering = serve_store(
            self._store or configured_store(self.config, self.data_dir.cluster_id),
            self.data_dir,
            is_standby=self._opened is not None,
            group_commit=self.group_commit,
            space=self.space,
            fetch_waiters=self.fetch_waiters,
            clock=self.clock,
            live=self.live,
            metrics=self.metrics,
            threads=self._threads,
            source=self._random,
        )

    def _restore_clock(self) -> None:
        """Let a settable clock continue where it stood.

        Raises:
            DataDirError: the directory was made with the system's clock.
        """
        if isinstance(self.clock, SettableClock):
            self.metrics.clock_settable = True
            self.clock.restore_from(self.config.data_dir, self._files)
            from broker.faults.requests import RequestFaults  # only for tests

            self.faults = RequestFaults(self.connections)

    def _save_clock(self) -> None:
        if isinstance(self.clock, SettableClock):
            write_clock(self.data_dir.path, self._files, self.clock.state())

    def _close_data_dir(self) -> None:
        try:
            self.data_dir.close(self.clock.wall_ms(), run_all=self._run_last_syncs)
        except StorageError as error:
            logger.error("the data directory was not closed cleanly: %s", error)

    def _run_last_syncs(self, tickets: Sequence[FlushTicket]) -> None:
        self._threads.sync.run_all([ticket.run for ticket in tickets])

    def _topic_deleted(self, topic: Topic) -> None:
        self.metrics.client_times.forget(topic.name)
        if self.security.access is not None and self.topics.windows.is_reserved(topic.name):
            self.security.access.forget()  # the name is a window's from now on
        for log in topic.logs:
            self.group_commit.log_closed(log)
            self.fetch_waiters.log_changed(log)

    def _context(self, listener: Listener, bound: socket.socket) -> Context:
        return Context(
            config=self.config,
            cluster_id=self.data_dir.cluster_id,
            endpoint=self._endpoint(listener, bound),
            clock=self.live,
            time=self.time,
            random=self._random,
            topics=self.topics,
            group_commit=self.group_commit,
            space=self.space,
            fetch_waiters=self.fetch_waiters,
            fetch_sessions=FetchSessions(
                self.config.max_incremental_fetch_session_cache_slots,
                clock=self.live,
                source=self._random,
            ),
            turns=self.connections.turns,
            answers=self.connections.answers,
            metrics=self.metrics,
            groups=self.groups,
            transactions=self.transactions,
            security=self.security,
            telemetry=self.telemetry,
            remote=self.remote,
        )

    def _endpoint(self, listener: Listener, bound: socket.socket) -> Endpoint:
        """What Metadata says of this broker to clients of `listener`."""
        host, port = address_for_clients(listener, bound, self.config)
        return Endpoint(
            node_id=self.data_dir.node_id,
            host=host,
            port=port,
            rack=self.config.broker_rack or None,
            listener=listener.name,
        )

    def _bind(self, listener: Listener) -> socket.socket:
        """A socket bound to the listener's address, closed again if the start fails."""
        try:
            bound = bound_socket(listener, self.config)
        except OSError as error:
            raise address_error(listener, error) from error
        self._stack.callback(bound.close)
        return bound

    def _listen(
        self, context: Context, listener: Listener, bound: socket.socket, rates: AcceptRates
    ) -> None:
        """Accept the clients of one listener; each listener returns its own address."""
        own = dataclasses.replace(context, endpoint=self._endpoint(listener, bound))
        dispatcher = Dispatcher(own)
        if self._further is not None:
            from broker.workers.forward import ForwardingDispatcher

            dispatcher = ForwardingDispatcher(own, self._further.open_upstream)
        if self.faults is not None:
            self.faults.watch(dispatcher)
        self._dispatchers[listener.name] = dispatcher
        guard = self._guards.get(listener.name)
        lanes = ProduceLane(own, SCRATCH), FetchLane(own, SCRATCH)
        connection = partial(ClientConnection, dispatcher, self.connections, guard, *lanes)
        try:
            bound.listen(self.config.socket_listen_backlog_size)
        except OSError as error:  # another process bound it too and listened first
            raise address_error(listener, error) from error
        contexts = None if guard is None else guard.tls
        self._servers.append(
            Acceptor(
                bound,
                contexts,
                self.connections.handshakes,
                connection,
                rates,
                self.metrics,
                self.security.audit,
                listener.name,
            )
        )

    def _accept_forwarded(self, facts: "Message", descriptor: int) -> None:
        """Serve a client that another worker forwards."""
        from broker.workers.forward import ForwardedConnection, accept_forwarded

        dispatcher = self._dispatchers[facts["listener"]]
        client = socket.socket(fileno=descriptor)
        serving = asyncio.get_running_loop().create_task(
            accept_forwarded(
                client, lambda: ForwardedConnection(dispatcher, self.connections, facts)
            )
        )
        self._accepting.add(serving)
        serving.add_done_callback(self._accepting.discard)

    def _accept_rates(self) -> AcceptRates:
        return AcceptRates(
            lambda: self.topics.broker_config,
            lambda: self.security.throttle,
            windows_of(self.config),
            clock=self.clock,
            metrics=self.metrics,
        )

    def _begin_warm_up(self) -> None:
        if self._is_ready:
            load = partial(warm_up, self._dispatchers.values(), lambda: self._is_ready)
            self._threads.control.submit(load, self._warmed_up)

    def _warmed_up(self, _: None, error: BaseException | None) -> None:
        self.warm.set()
        if error is not None:
            logger.error("the code for the first requests could not be loaded", exc_info=error)

    async def _finish_requests(self) -> None:
        """Close the listeners, let requests finish, cut those that do not."""
        self._is_ready = False
        for server in self._servers:
            server.close()
        self.fetch_waiters.release_all()
        self.groups.release_waiters()
        for connection in self.connections:
            connection.finish("the broker stops")
        await self.connections.wait_empty(STOP_GRACE_S)
        for connection in self.connections:
            connection.cut("the broker stops")

    def _bind_metrics(self) -> socket.socket | None:
        """The socket of the metrics port; DescribeConfigs returns the port that it has."""
        bound = bound_metrics_socket(self.config)
        if bound is None:
            return None
        self._stack.callback(bound.close)
        self.config = self.config.with_metrics_port(bound.getsockname()[1])
        return bound

    async def _start_metrics(self, context: Context, bound: socket.socket) -> None:
        """Serve metrics, probes and explanations."""
        listener = self.config.metrics_listener
        assert listener is not None
        guard = self._guards.get(listener.name)
        access = PortAccess(
            self.config, listener, self.security, guard, self.metrics, self._threads.side
        )
        collector = BrokerCollector(
            self.metrics,
            self.topics,
            self.connections,
            self.fetch_waiters,
            context.fetch_sessions,
            self.group_lag,
            self.groups.shares,
            self.groups.streams,
            self.telemetry,
            self.security,
            self.space,
        )
        queries = pages(
            self.topics,
            self.space,
            self.remote,
            self.metrics.client_times,
            self._threads.control,
            self.time.now_ms,
            worker=self._first or self._further,
            workers=self.config.workers,
        )
        commands: dict[str, Command] = {}
        if isinstance(self.clock, SettableClock):
            from broker.operator.clock import ClockControl

            control = ClockControl(
                self.clock, self.groups, self.metrics, settle=self._settle, save=self._save_clock
            )
            queries["/clock"], commands["/clock"] = control.show, control.change
        if self.faults is not None:
            from broker.faults.control import FaultControl

            FaultControl(self.faults).serve(queries, commands)
        if self.standby is not None:
            from broker.operator.standby import StandbyControl

            standby = StandbyControl(self.standby.reading, self.standby.promote)
            queries["/standby"], commands["/standby"] = standby.show, standby.change
        server = MetricsServer(
            lambda shows_names: render(collector, shows_names=shows_names),
            access,
            healthy=self._offline_partition,
            ready=lambda _: None if self._is_ready else "not accepting clients",
            queries=queries,
            commands=commands,
            load=partial(self._threads.control.run, load_port),
        )
        secure = None
        if guard is not None and guard.tls is not None:
            secure = partial(
                Acceptor,
                contexts=guard.tls,
                rates=None,
                metrics=self.metrics,
                audit=self.security.audit,
                name=listener.name,
            )
        await server.start(bound, secure)
        self._stack.push_async_callback(server.stop)

    async def _settle(self) -> None:
        """Wait until what a moved clock made due has run and is on disk."""
        await self.jobs.settle()
        await self.jobs.run_now("clock")
        await self.jobs.run_now("coordinators")
        # Without the time limit a client that keeps writing would keep the caller waiting.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self.group_commit.drain()

    def _offline_partition(self, shows_names: bool) -> str | None:
        for log in self.topics.logs():
            if log.offline_reason is not None:
                if not shows_names:
                    return "a partition is offline"
                return f"{log.topic}-{log.partition} is offline: {log.offline_reason}"
        return None

    def _schedule_jobs(self) -> None:
        jobs = BackgroundJobs(
            config=self.config,
            clock=self.clock,
            live=self.live,
            time=self.time,
            data_dir=self.data_dir,
            topics=self.topics,
            group_commit=self.group_commit,
            fetch_waiters=self.fetch_waiters,
            connections=self.connections,
            groups=self.groups,
            group_lag=self.group_lag,
            transactions=self.transactions,
            metrics=self.metrics,
            threads=self._threads.jobs,
            certificates=self.certificates,
            security=self.security,
            identity_keys=self.identity_keys,
            tiering=self._tiering,
            bucket=self.bucket,
            standby=self.standby,
        )
        jobs.schedule(self.jobs)
