"""Telemetry of clients at work: one object that the handlers and the metrics port use."""

import random
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.clocks.clock import Clock
from broker.telemetry import otlp
from broker.telemetry.figures import ClientFigures, Value, values_of
from broker.telemetry.instances import Instance, Instances
from broker.telemetry.subscriptions import Subscriptions
from protocol.error_codes import ErrorCode
from protocol.errors import RecordsError
from protocol.records.compression import decompress
from protocol.records.layout import Codec

if TYPE_CHECKING:
    from storage.directory.data_dir import DataDir

ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In order of preference; a push may come without compression, too."""

_FORGET_EVERY_MS: Final = 1_000
_COMPLAIN_EVERY_MS: Final = 60_000
NO_ID: Final = bytes(16)
_RESERVED: Final = frozenset({NO_ID, bytes(15) + b"\x01"})
"""No client has these ids: Kafka's ZERO_UUID and ONE_UUID."""


class Asked(NamedTuple):
    """The instance of a question, and whether it may be answered."""

    instance: Instance
    error: ErrorCode


class Pushed(NamedTuple):
    """The values of a push that was read, and how many more there were."""

    values: list[Value]
    left_out: int


class Telemetry:
    """Subscriptions, instances and figures of one broker. Loop thread only, but for `read`."""

    def __init__(
        self, documents: "DataDir", max_bytes: int, clock: Clock, source: random.Random
    ) -> None:
        """Take the stored subscriptions; a push has at most `max_bytes`, also decompressed."""
        self.subscriptions = Subscriptions(documents)
        self.instances = Instances(self.subscriptions)
        self.figures = ClientFigures()
        self.max_bytes = max_bytes
        self.pushes: Counter[str] = Counter()
        """By the name of the error: none for those that were taken."""

        self._clock = clock
        self._source = source
        self._next_forget_ms = self._next_complaint_ms = 0

    def ask(self, instance_id: bytes, facts: Mapping[str, str]) -> Asked:
        """A client asks what to push; without an id it gets one."""
        if instance_id in _RESERVED:
            instance_id = uuid.UUID(int=self._source.getrandbits(128), version=4).bytes
        instance = self._instance(instance_id, facts)
        return Asked(instance, instance.check_question(self._clock.monotonic_ms()))

    def check_push(
        self,
        instance_id: bytes,
        facts: Mapping[str, str],
        subscription_id: int,
        compression: int,
        size_bytes: int,
        *,
        is_last: bool,
    ) -> tuple[Instance | None, ErrorCode]:
        """Whether a push is in order; the instance unless its id is none."""
        if instance_id in _RESERVED:
            return None, ErrorCode.INVALID_REQUEST
        instance = self._instance(instance_id, facts)
        error = instance.check_push(subscription_id, self._clock.monotonic_ms(), is_last=is_last)
        if error is ErrorCode.NONE:
            if compression not in (Codec.NONE, *ACCEPTED):
                error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            elif size_bytes > self.max_bytes:
                error = ErrorCode.TELEMETRY_TOO_LARGE
            instance.last_error = error
        if error is ErrorCode.NONE:
            instance.is_terminated = is_last
        return instance, error

    def _instance(self, instance_id: bytes, facts: Mapping[str, str]) -> Instance:
        now_ms = self._clock.monotonic_ms()
        known = {**facts, "client_instance_id": str(uuid.UUID(bytes=instance_id))}
        instance = self.instances.get(instance_id, known, now_ms)
        self.forget()
        return instance

    def forget(self) -> None:
        """Forget silent instances with their figures, at most once per second, and too many."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_forget_ms or self.instances.are_too_many:
            self._next_forget_ms = now_ms + _FORGET_EVERY_MS
            self.figures.forget(self.instances.forget(now_ms))

    def read(self, instance: Instance, compression: int, data: bytes) -> Pushed:
        """What is wanted of a push of `instance`; may run in any thread.

        Raises:
            otlp.Unreadable: these are no metrics, or too many bytes when decompressed.
        """
        try:
            plain = decompress(Codec(compression), data, max_bytes=self.max_bytes)
        except RecordsError as error:
            raise otlp.Unreadable(str(error)) from error
        push = otlp.read(bytes(plain), instance.wanted.metrics)
        return Pushed(values_of(push.points), push.left_out)

    def take(self, instance: Instance, client_id: str, pushed: Pushed) -> None:
        """Keep the values of a push, unless the instance was forgotten while it was read."""
        self.figures.dropped += pushed.left_out
        if instance in self.instances:
            self.figures.take(instance.instance_id, client_id, pushed.values)

    def may_complain(self) -> bool:
        """Whether a push that cannot be read is logged: one in a minute."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_complaint_ms:
            return False
        self._next_complaint_ms = now_ms + _COMPLAIN_EVERY_MS
        return True
