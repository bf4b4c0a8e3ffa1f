"""Enforcing quotas: what each client has used, how long it has to wait, and its silence meanwhile.

A request is answered first, with the delay in `throttle_time_ms`; then its connection is *muted*:
no further request of it starts until the delay is over. So also clients are slowed down that ignore
the field.

    Produce      bytes of the whole request, counted when it arrives
    Fetch        bytes of the answer; a fetch over the bound is answered empty and not counted
    all          time of the event loop: decoding, handler, encoding. Work of other threads and the
                 waiting time of a parked fetch do not count
    topics       partitions that are created or deleted, in `MutationQuota`
    connections  of one address; over the bound a socket is held for the delay and closed

`Throttle` exists only while some quota is set, so without quotas no clock is read. Clients whose
requests no quota can limit keep the compiled lanes (`broker.net.produce_lane`). What a client
has used is in a `Rate` or `TokenBucket` per limit and sharer. There are at most `BUCKETS_MAX` of
them; further clients share one per key, so a client cannot exhaust memory by varying its id.

Differs from Kafka: no connection is muted for longer than `MUTE_MAX_MS`.

Source: KIP-13, KIP-124, KIP-219, KIP-599, KIP-612; Kafka `ClientQuotaManager`,
`ClientRequestQuotaManager`, `ControllerMutationQuotaManager`, `ConnectionQuotas`.
Read next: `broker.quotas.book`, `broker.quotas.rates`.
"""

import heapq
import itertools
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from types import CoroutineType, GeneratorType, coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from broker.errors import ThrottlingQuotaExceeded
from broker.quotas.book import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    QuotaBook,
)
from broker.quotas.rates import MS_PER_S, Rate, TokenBucket
from broker.replies.forms import then
from protocol.api_keys import ApiKey
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.clocks.clock import Clock
    from broker.metrics import Metrics
    from config import BrokerConfig

MUTE_MAX_MS: Final = 30_000
BUCKETS_MAX: Final = 10_000
IDLE_MS: Final = 3_600_000
"""A bucket that was not used for this time is dropped."""

_SWEEP_MS: Final = 60_000
_NS_PER_PERCENT: Final = 10_000_000
"""Nanoseconds in one percent of a second."""

_PRODUCE: Final = ApiKey.PRODUCE
_FETCH: Final = ApiKey.FETCH
"""Looked up once: a member of an enumeration costs as much as a comparison of rates."""

_ANSWER_BYTES: Final = 32
_PARTITION_BYTES: Final = 48
"""About the bytes of a fetch answer beside its records."""

_NOT_TIMED: Final = frozenset(
    {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS}
)


class Channel(Protocol):
    """What the enforcement of quotas needs of a connection."""

    muted_until_ms: int
    """Monotonic time before which no request starts; 0 when it is not muted."""

    def unmute(self) -> None:
        """Start requests again."""


class Client(Protocol):
    """What is asked of `broker.security.session.Session`."""

    @property
    def user(self) -> str:
        """The name of the principal."""

    @property
    def channel(self) -> Channel | None:
        """The connection, while it is open."""


class Request(Protocol):
    """What is asked of `broker.requests.context.RequestContext`."""

    @property
    def api_key(self) -> int:
        """The API."""

    @property
    def client_id(self) -> str | None:
        """The name that the client gives itself."""

    @property
    def session(self) -> Client:
        """Who the client is, and its connection."""


class Usage(NamedTuple):
    """One limit of an entity, and what is used of it.

    `rate` is in the unit of the bound, for the token bucket of partitions `tokens` are those left;
    both are None for defaults, which every client uses for itself.
    """

    entity: Entity
    key: str
    bound: float
    rate: float | None = None
    tokens: float | None = None


class Excess(NamedTuple):
    """A limit that a client is over; `entity` has the names by which the client is measured."""

    entity: tuple[tuple[str, str], ...]
    key: str
    bound: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Over how many windows of what length rates are measured."""

    count: int
    size_ms: int
    controller_count: int
    controller_size_ms: int


def windows_of(config: "BrokerConfig") -> Windows:
    """The windows that the settings name."""
    return Windows(
        count=config.quota_window_num,
        size_ms=config.quota_window_size_seconds * MS_PER_S,
        controller_count=config.controller_quota_window_num,
        controller_size_ms=config.controller_quota_window_size_seconds * MS_PER_S,
    )


class Mutes:
    """The muted connections, and one timer for all of them."""

    def __init__(self, clock: "Clock") -> None:
        """Wake them by `clock`."""
        self._clock = clock
        self._order = itertools.count()
        self._heap: list[tuple[int, int, weakref.ref[Channel]]] = []
        self._due_ms: int | None = None

    def __len__(self) -> int:
        """How many connections are muted now."""
        now_ms = self._clock.monotonic_ms()
        muted = {ref() for due_ms, _, ref in self._heap if due_ms > now_ms}
        return len(muted - {None})

    def mute(self, channel: Channel, delay_ms: int) -> None:
        """Start no request of `channel` for this time, at most `MUTE_MAX_MS`."""
        until_ms = self._clock.monotonic_ms() + min(delay_ms, MUTE_MAX_MS)
        if until_ms <= channel.muted_until_ms:
            return
        channel.muted_until_ms = until_ms
        # Weak: a client that reconnects all the time must not collect closed connections here.
        heapq.heappush(self._heap, (until_ms, next(self._order), weakref.ref(channel)))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._heap and (self._due_ms is None or self._heap[0][0] < self._due_ms):
            self._due_ms = due_ms = self._heap[0][0]
            wait_ms = max(0, due_ms - self._clock.monotonic_ms())
            self._clock.call_later(wait_ms, lambda: self._wake(due_ms))

    def _wake(self, due_ms: int) -> None:
        if due_ms != self._due_ms:
            return  # an earlier timer has been set since
        self._due_ms = None
        now_ms = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            until_ms, _, ref = heapq.heappop(self._heap)
            channel = ref()
            if channel is not None and channel.muted_until_ms == until_ms:
                channel.unmute()
        self._set_timer()


class _Meter:
    """A rate and its bound, for one client."""

    __slots__ = ("_rate", "bound", "owed")

    def __init__(self, rate: Rate, bound: float) -> None:
        self._rate = rate
        self.bound = bound
        self.owed = 0.0
        """What was used after the last record, to be recorded with the next one."""

    def charge(self, value: float, now_ms: int) -> int:
        """Record `value`; how long the client has to wait after that."""
        self._rate.record(value, now_ms)
        if self._rate.is_certainly_below(self.bound):
            return 0
        return self._rate.delay_ms(self.bound, now_ms)

    def delay_ms(self, clock: "Clock") -> int:
        """How long the client has to wait."""
        if self._rate.is_certainly_below(self.bound):
            return 0
        return self._rate.delay_ms(self.bound, clock.monotonic_ms())

    def record(self, value: float, now_ms: int) -> None:
        """Record `value`, or take it back when it is negative."""
        self._rate.record(value, now_ms)


class _Limits(NamedTuple):
    """What applies to one client; None where nothing does."""

    producer: _Meter | None
    consumer: _Meter | None
    requests: _Meter | None
    mutations: TokenBucket | None


class MutationQuota:
    """The partitions that one request may still create and delete.

    A strict one refuses what is over the bound. Requests of old versions have no code for that:
    they are served, and their client waits.
    """

    __slots__ = ("_bucket", "_clock", "_is_strict", "delay_ms")

    def __init__(
        self, bucket: TokenBucket | None, clock: "Clock | None", *, is_strict: bool
    ) -> None:
        """Take from `bucket`; without one nothing is limited."""
        self._bucket = bucket
        self._clock = clock
        self._is_strict = is_strict
        self.delay_ms = 0
        """How long the client has to wait: `throttle_time_ms` of the answer."""

    def charge(self, partitions: int) -> None:
        """Count partitions that are created or deleted.

        Raises:
            ThrottlingQuotaExceeded: they must not be, now.
        """
        if self._bucket is None or self._clock is None:
            return
        now_ms = self._clock.monotonic_ms()
        if not self._is_strict:
            self.delay_ms = self._bucket.take_anyway(partitions, now_ms)
            return
        delay_ms = self._bucket.take(partitions, now_ms)
        if delay_ms:
            self.delay_ms = delay_ms
            raise ThrottlingQuotaExceeded(
                "The throttling quota has been exceeded "
                f"({CONTROLLER_MUTATION_RATE}); try again in {delay_ms} ms."
            )


class FetchQuota(NamedTuple):
    """The bytes that one fetch may still have."""

    meter: _Meter
    clock: "Clock"

    def delay_ms(self, records_bytes: int, partitions: int) -> int:
        """Count an answer; when the client has to wait it is not counted, and must not be sent."""
        now_ms = self.clock.monotonic_ms()
        size_bytes = _ANSWER_BYTES + partitions * _PARTITION_BYTES + records_bytes
        delay_ms = self.meter.charge(size_bytes, now_ms)
        if delay_ms:
            self.meter.record(-size_bytes, now_ms)
        return delay_ms


class Throttle:
    """The enforcement of the quotas of one broker. Loop thread only."""

    def __init__(
        self,
        book: QuotaBook,
        windows: Windows,
        mutes: Mutes,
        *,
        clock: "Clock",
        metrics: "Metrics",
        on_excess: Callable[[Excess, int], object] = lambda excess, delay_ms: None,
    ) -> None:
        """Enforce `book`; `quotas_changed` has to be called after each change of it.

        `on_excess` gets every limit that a client is over, and the delay of that client.
        """
        self._on_excess = on_excess
        self._book = book
        self._windows = windows
        self._mutes = mutes
        self._clock = clock
        self._metrics = metrics
        self._limits: dict[tuple[str, str], _Limits] = {}
        self._is_limited: dict[str, bool] = {}
        self._rates: dict[tuple[str | None, ...], Rate] = {}
        self._tokens: dict[tuple[object, ...], TokenBucket] = {}
        self._swept_ms = clock.monotonic_ms()
        self._timed: _Meter | None = None
        self._mark_ns = 0

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return len(self._rates) + len(self._tokens)

    def usage(self) -> Iterator[Usage]:
        """Every limit that is set."""
        now_ms = self._clock.monotonic_ms()
        for entity, limits in self._book:
            names = dict(entity)
            user, client_id = names.get(USER), names.get(CLIENT_ID)
            for key, bound in limits.items():
                rate = tokens = None
                if None in names.values():
                    pass
                elif key == CONTROLLER_MUTATION_RATE:
                    bucket = self._tokens.get((user, client_id, bound))
                    tokens = None if bucket is None else bucket.left(now_ms)
                else:
                    sharer = ("ip", names[IP]) if IP in names else (key, user, client_id)
                    used = self._rates.get(sharer)
                    rate = 0.0 if used is None else used.measure(now_ms)
                yield Usage(entity, key, bound, rate, tokens)

    def quotas_changed(self) -> None:
        """Look every limit up again; what the clients have used stays."""
        self._limits.clear()
        self._is_limited.clear()

    def may_limit_requests(self, user: str) -> bool:
        """Whether requests of this user have to be counted, by their bytes or their time.

        Asked once for each read: for other users the compiled lanes stay, which count nothing.
        """
        is_limited = self._is_limited.get(user)
        if is_limited is None:
            if len(self._is_limited) >= BUCKETS_MAX:
                self._is_limited.clear()
            is_limited = self._is_limited[user] = self._book.may_limit_requests(user)
        return is_limited

    # --- requests -------------------------------------------------------------------------------

    def serve(
        self,
        handler: Callable[..., Any],
        context: Any,
        request: Request,
        message: Any,
        frame_bytes: int,
        started_ns: int,
    ) -> Any:
        """Call `handler`, and delay the client by what it uses."""
        self._timed = None
        limits = self._limits_of(request)
        api_key = request.api_key
        delay_ms = 0
        if api_key == _PRODUCE and limits.producer is not None:
            delay_ms = limits.producer.charge(frame_bytes, self._clock.monotonic_ms())
            self._hold(request, "produce", PRODUCER_BYTE_RATE, delay_ms)
        elif api_key == _FETCH and limits.consumer is not None:
            # So that one fetch passes, however low the bound is.
            seconds = (self._windows.count - 1) * self._windows.size_ms / MS_PER_S
            message.max_bytes = min(message.max_bytes, max(1, int(limits.consumer.bound * seconds)))
        reply = handler(context, request, message)
        meter = limits.requests
        if meter is not None:
            if api_key in _NOT_TIMED:
                meter = None
            else:
                reply = self._begin_timing(reply, meter, started_ns)
        if not hasattr(reply, "throttle_time_ms"):
            return then(reply, lambda answer: self._answered(request, answer, delay_ms, meter))
        if meter is None and not delay_ms and not reply.throttle_time_ms:
            return reply  # nearly always
        return self._answered(request, reply, delay_ms, meter)

    def _begin_timing(self, reply: Any, meter: _Meter, started_ns: int) -> Any:
        """Count the time since `started_ns` and that of `reply`, if there are steps to it."""
        now_ns = self._mark_ns = time.perf_counter_ns()
        self._timed = meter
        used = meter.owed + (now_ns - started_ns) / _NS_PER_PERCENT
        meter.owed = 0.0
        meter.record(used, self._clock.monotonic_ms())
        if type(reply) is GeneratorType:
            return self._timed_steps(reply, meter)
        if isinstance(reply, CoroutineType):
            return _awaited(self._timed_steps(reply, meter))
        return reply

    def count_encoding(self, now_ns: int) -> None:
        """Count the time since the handler of the request being dispatched, if it is limited.

        The next request records it. `now_ns` is the present, of `time.perf_counter_ns`.
        """
        if self._timed is not None:
            self._timed.owed += (now_ns - self._mark_ns) / _NS_PER_PERCENT
            self._timed = None

    def timed(self, request: Request, steps: Any) -> Any:
        """`steps` of a request that waited, with their time counted."""
        meter = self._limits_of(request).requests
        return steps if meter is None else self._timed_steps(steps, meter)

    def fetch_quota(self, request: Request) -> FetchQuota | None:
        """The limit of a fetch, or None."""
        meter = self._limits_of(request).consumer
        return None if meter is None else FetchQuota(meter, self._clock)

    def mutation_quota(self, request: Request, *, is_strict: bool) -> MutationQuota:
        """The limit of a request that changes topics."""
        bucket = self._limits_of(request).mutations
        return MutationQuota(bucket, self._clock, is_strict=is_strict)

    def connection_delay_ms(self, host: str) -> int:
        """Count a connection of `host`; how long to hold it before it is closed, or 0 to serve."""
        bound = self._book.ip_limit(host)
        if bound is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        meter = _Meter(self._rate(("ip", host), now_ms), bound)
        delay_ms = min(meter.charge(1, now_ms), self._windows.size_ms)
        if delay_ms:
            rate = self._rate(("ip", host), now_ms).measure(now_ms)
            meter.record(-1, now_ms)
            self._metrics.throttled("connection", delay_ms)
            excess = Excess(((IP, host),), CONNECTION_CREATION_RATE, bound, rate)
            self._on_excess(excess, delay_ms)
        return delay_ms

    def _answered(self, request: Request, answer: Any, delay_ms: int, meter: _Meter | None) -> Any:
        """`answer` with the longest of the delays, for which the connection is mute."""
        if not hasattr(answer, "throttle_time_ms"):
            return answer
        own_ms = answer.throttle_time_ms
        if own_ms:
            if request.api_key == _FETCH:
                self._hold(request, "fetch", CONSUMER_BYTE_RATE, own_ms)
            else:
                self._hold(request, "controller_mutation", CONTROLLER_MUTATION_RATE, own_ms)
        time_ms = 0
        if meter is not None and (time_ms := meter.delay_ms(self._clock)):
            time_ms = min(time_ms, self._windows.size_ms)
            self._hold(request, "request", REQUEST_PERCENTAGE, time_ms)
        answer.throttle_time_ms = max(own_ms, delay_ms, time_ms)
        return answer

    def _hold(self, request: Request, kind: str, key: str, delay_ms: int) -> None:
        if delay_ms:
            self._metrics.throttled(kind, delay_ms)
            self._report(request, key, delay_ms)
            if request.session.channel is not None:
                self._mutes.mute(request.session.channel, delay_ms)

    def _report(self, request: Request, key: str, delay_ms: int) -> None:
        limit = self._book.limit(key, request.session.user, request.client_id or "")
        if limit is None:
            return
        names = ((USER, limit.user), (CLIENT_ID, limit.client_id))
        entity = tuple((kind, name) for kind, name in names if name is not None)
        now_ms, windows = self._clock.monotonic_ms(), self._windows
        if key == CONTROLLER_MUTATION_RATE:
            bucket = self._bucket((limit.user, limit.client_id), limit.bound, now_ms)
            window_ms = windows.controller_count * windows.controller_size_ms
            rate = limit.bound + max(0.0, -bucket.left(now_ms)) * MS_PER_S / window_ms
        elif key == CONSUMER_BYTE_RATE:  # what the client has not got is not recorded
            window_ms = self._rate((key, limit.user, limit.client_id), now_ms).window_ms(now_ms)
            rate = limit.bound * (1 + delay_ms / window_ms)
        else:
            rate = self._rate((key, limit.user, limit.client_id), now_ms).measure(now_ms)
        self._on_excess(Excess(entity, key, limit.bound, rate), delay_ms)

    def _timed_steps(self, steps: Any, meter: _Meter) -> Generator[Any, Any, Any]:
        """`steps`, a generator or a coroutine, with the time of each step counted."""
        advance: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            began_ns = time.perf_counter_ns()
            try:
                step = advance(given)
            except StopIteration as stop:
                return stop.value
            finally:
                spent_ns = time.perf_counter_ns() - began_ns
                meter.record(spent_ns / _NS_PER_PERCENT, self._clock.monotonic_ms())
                if self._timed is meter:
                    self._mark_ns += spent_ns
            try:
                given = yield step
                advance = steps.send
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - handed to the steps
                given = error
                advance = steps.throw

    # --- buckets --------------------------------------------------------------------------------

    def _limits_of(self, request: Request) -> _Limits:
        client = request.session.user, request.client_id or ""
        limits = self._limits.get(client)
        if limits is None:
            if len(self._limits) >= BUCKETS_MAX:
                self._limits.clear()
            limits = self._look_up(*client)
            self._limits[client] = limits
        return limits

    def _look_up(self, user: str, client_id: str) -> _Limits:
        now_ms = self._clock.monotonic_ms()
        self._sweep(now_ms)

        def meter(key: str) -> _Meter | None:
            limit = self._book.limit(key, user, client_id)
            if limit is None:
                return None
            return _Meter(self._rate((key, limit.user, limit.client_id), now_ms), limit.bound)

        mutations = self._book.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        bucket = None
        if mutations is not None:
            bucket = self._bucket((mutations.user, mutations.client_id), mutations.bound, now_ms)
        return _Limits(
            meter(PRODUCER_BYTE_RATE), meter(CONSUMER_BYTE_RATE), meter(REQUEST_PERCENTAGE), bucket
        )

    def _rate(self, sharer: tuple[str | None, ...], now_ms: int) -> Rate:
        rate = self._rates.get(sharer)
        if rate is None:
            if self.buckets >= BUCKETS_MAX:
                sharer = (sharer[0],)
            windows = self._windows
            rate = self._rates.setdefault(sharer, Rate(windows.count, windows.size_ms, now_ms))
        return rate

    def _bucket(self, sharer: tuple[object, ...], bound: float, now_ms: int) -> TokenBucket:
        # The bound is part of the key: a bucket is for one rate.
        key = (*sharer, bound)
        if key not in self._tokens and self.buckets >= BUCKETS_MAX:
            key = (bound,)
        bucket = self._tokens.get(key)
        if bucket is None:
            windows = self._windows
            burst = bound * windows.controller_count * windows.controller_size_ms / MS_PER_S
            bucket = self._tokens[key] = TokenBucket(bound, burst, now_ms)
        return bucket

    def _sweep(self, now_ms: int) -> None:
        """Drop what was not used for long, at most once a minute."""
        if now_ms - self._swept_ms < _SWEEP_MS:
            return
        self._swept_ms = now_ms
        oldest_ms = now_ms - IDLE_MS
        self._rates = {k: r for k, r in self._rates.items() if r.used_ms >= oldest_ms}
        self._tokens = {k: b for k, b in self._tokens.items() if b.used_ms >= oldest_ms}
        self._limits.clear()


UNLIMITED: Final = MutationQuota(None, None, is_strict=False)
"""For a broker without quotas."""


@coroutine
def _as_awaitable(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return (yield from steps)


async def _awaited(steps: Generator[Any, Any, Any]) -> Any:
    return await _as_awaitable(steps)
