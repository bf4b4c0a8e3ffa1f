"""Client instances: which of their requests are in order, and which are refused.

Owns what the broker remembers of each instance. It forgets one that was silent for three intervals,
and the one that was silent for longest when there are too many: a forgotten one begins again.

Differs from Kafka: an instance is not forgotten with its connection, so that its last values can be
read; an early question for subscriptions is answered after UNKNOWN_SUBSCRIPTION_ID and
UNSUPPORTED_COMPRESSION_TYPE, as KIP-714 says.

Source: KIP-714; Kafka `ClientMetricsManager`, `ClientMetricsInstance`.
"""

import zlib
from collections.abc import Mapping
from typing import Final

from broker.telemetry.subscriptions import Subscriptions, Wanted
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass

INSTANCES_MAX: Final = 16_384
_FORGET_LEAST_MS: Final = 60_000
_FORGET_INTERVALS: Final = 3
_ASK_AGAIN: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
_NEVER: Final = -(2**62)


@dataclass(slots=True, eq=False)
class Instance:
    """One client instance."""

    instance_id: bytes
    revision: int = -1
    wanted: Wanted = Wanted()
    subscription_id: int = 0
    asked_ms: int = _NEVER
    pushed_ms: int = _NEVER
    seen_ms: int = _NEVER
    owes_push: bool = False
    is_terminated: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def subscribe(self, wanted: Wanted, revision: int) -> None:
        """Take what is wanted of it now; if that is something else, it may ask at once."""
        self.revision = revision
        before, self.subscription_id = self.subscription_id, _subscription_id(self, wanted)
        self.wanted = wanted
        if before != self.subscription_id:
            self.asked_ms = self.pushed_ms = _NEVER

    def check_question(self, now_ms: int) -> ErrorCode:
        """Whether a question for subscriptions may be answered now."""
        is_early = now_ms - max(self.asked_ms, self.pushed_ms) < self.wanted.interval_ms
        if is_early and self.last_error not in _ASK_AGAIN:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.asked_ms = now_ms
        self.owes_push = True
        self.last_error = ErrorCode.NONE
        return ErrorCode.NONE

    def check_push(self, subscription_id: int, now_ms: int, *, is_last: bool) -> ErrorCode:
        """Whether a push may be taken now; the first one after a question comes any time."""
        if self.is_terminated:
            return self._refused(ErrorCode.INVALID_REQUEST)
        is_due = self.owes_push or now_ms - self.pushed_ms >= self.wanted.interval_ms
        if not is_due and not is_last:
            return self._refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.pushed_ms = now_ms
        self.owes_push = False
        if subscription_id != self.subscription_id:
            return self._refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        return ErrorCode.NONE

    def _refused(self, error: ErrorCode) -> ErrorCode:
        self.last_error = error
        return error

    @property
    def forget_ms(self) -> int:
        """From when on a silent instance is forgotten."""
        wait_ms = max(_FORGET_LEAST_MS, _FORGET_INTERVALS * self.wanted.interval_ms)
        return self.seen_ms + wait_ms


def _subscription_id(instance: Instance, wanted: Wanted) -> int:
    """The same for the same subscription, whichever broker computes it; a signed 32-bit number."""
    text = "\n".join((*wanted.metrics, str(wanted.interval_ms))).encode()
    value = zlib.crc32(text) ^ zlib.crc32(instance.instance_id)
    return value - (1 << 32) if value >= 1 << 31 else value


class Instances:
    """All instances, the one that was silent for longest first."""

    def __init__(self, subscriptions: Subscriptions, limit: int = INSTANCES_MAX) -> None:
        self._subscriptions = subscriptions
        self._limit = limit
        self._known: dict[bytes, Instance] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def __contains__(self, instance: Instance) -> bool:
        """Whether it is remembered still."""
        return self._known.get(instance.instance_id) is instance

    @property
    def are_too_many(self) -> bool:
        """Whether `forget` has to drop some that are not silent."""
        return len(self._known) > self._limit

    def get(self, instance_id: bytes, facts: Mapping[str, str], now_ms: int) -> Instance:
        """The instance, remembered from now on, with its subscription of now.

        `facts` are by selector.
        """
        instance = self._known.pop(instance_id, None)
        if instance is None:
            instance = Instance(instance_id)
        self._known[instance_id] = instance
        instance.seen_ms = now_ms
        if instance.revision != self._subscriptions.revision:
            # A client whose address or name has changed is matched by what it is now.
            instance.subscribe(self._subscriptions.wanted(facts), self._subscriptions.revision)
        return instance

    def forget(self, now_ms: int) -> list[bytes]:
        """Forget instances that were silent for too long, or are too many; return their ids."""
        gone: list[bytes] = []
        if self.are_too_many:
            # A tenth at once, so that not every further instance walks over all.
            gone = list(self._known)[: len(self._known) - self._limit * 9 // 10]
        gone += [each.instance_id for each in self._known.values() if each.forget_ms <= now_ms]
        for instance_id in gone:
            self._known.pop(instance_id, None)
        return gone
