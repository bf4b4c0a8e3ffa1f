"""Records and their keys and values: converted by the user's serializers and deserializers.

What a registry has to be asked for is asked in a thread, before anything is converted, so that the
event loop never waits for it.

Invariant of a consumer: each record is handed out or reported as bad exactly once. A poll that
meets a bad record hands out those before it; the next poll raises, and the one after that continues
after it. A poll that is cancelled, or finds no registry, hands out nothing and loses nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic

from client.aio.fetching import Fetcher, PartitionReader
from client.errors import ClientError, InvalidType
from client.serde.converters import Converter
from client.serde.errors import BadValue
from client.types import ConsumerRecord, KeyT, TopicPartition, ValueT

Taken = list[tuple[PartitionReader, list[ConsumerRecord]]]
"""Records as they were read, with the readers that they were taken from."""

_FIELDS = ("key", "value")


def check_converters(**converters: object) -> None:
    """Each named value is None or can be called; raises InvalidType."""
    for name, converter in converters.items():
        if converter is not None and not callable(converter):
            raise InvalidType(f"{name}={converter!r} cannot be called: give a function of a value")


async def serialized(what: str, serializer: Callable[[Any], bytes], value: Any) -> Any:
    """A producer's value as bytes; what the serializer returns is checked by the caller.

    Raises:
        BadValue: the serializer raised.
        ClientError: its registry cannot be reached, or has no usable schema.
    """
    try:
        if isinstance(serializer, Converter) and not serializer.is_ready(value):
            await asyncio.to_thread(serializer.prepare, value)
        return serializer(value)
    except ClientError as error:
        if isinstance(error, BadValue):
            raise BadValue(f"the {what} cannot be serialized: {error}") from error
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadValue(f"the {what} cannot be serialized: {reason}") from error


class Conversion(Generic[KeyT, ValueT]):
    """A consumer's deserializers; `is_needed` says whether there are any."""

    def __init__(
        self,
        key_deserializer: Callable[[bytes], KeyT] | None,
        value_deserializer: Callable[[bytes], ValueT] | None,
    ) -> None:
        """Keep them; raises InvalidType for what cannot be called."""
        check_converters(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        self._deserializers = (key_deserializer, value_deserializer)
        self.is_needed = key_deserializer is not None or value_deserializer is not None

    async def convert(
        self, taken: Taken, fetcher: Fetcher
    ) -> dict[TopicPartition, list[ConsumerRecord[KeyT, ValueT]]]:
        """The records by partition, up to the first bad one; the rest goes back to its reader.

        Raises:
            BadValue: the very first record is bad; its `record` is the record as it was read.
            RegistryUnreachable: a registry gave no answer; all records went back.
        """
        epochs = [reader.epoch for reader, _ in taken]
        try:
            for _, records in taken:
                await self._prepare(records)
        except BaseException:
            for reader, records in _unmoved(taken, epochs, fetcher):
                reader.put_back(records)
            raise
        found: dict[TopicPartition, list[ConsumerRecord[KeyT, ValueT]]] = {}
        bad: BadValue | None = None
        for reader, records in _unmoved(taken, epochs, fetcher):
            if bad is not None:
                reader.put_back(records)
                continue
            good, bad = self._converted(records)
            if good:
                found[reader.partition] = good
            if bad is not None:
                # Alone it is raised now and is done with; after others it is met again.
                reader.put_back(records[len(good) if found else 1 :])
        if bad is not None and not found:
            raise bad
        return found

    async def _prepare(self, records: Sequence[ConsumerRecord]) -> None:
        for field, deserializer in zip(_FIELDS, self._deserializers, strict=True):
            if not isinstance(deserializer, Converter):
                continue
            for record in records:
                data = getattr(record, field)
                if data is not None and not deserializer.is_ready(data):
                    await asyncio.to_thread(deserializer.prepare, data)

    def _converted(
        self, records: Sequence[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord[KeyT, ValueT]], BadValue | None]:
        """The records before the first bad one, and what is wrong with that one."""
        good: list[Any] = []
        for record in records:
            changes: dict[str, Any] = {}
            for field, deserializer in zip(_FIELDS, self._deserializers, strict=True):
                data = getattr(record, field)
                if deserializer is None or data is None:
                    continue
                try:
                    changes[field] = _deserialized(deserializer, data, record, field)
                except _Undeserializable as undeserializable:
                    return good, undeserializable.bad
            good.append(record._replace(**changes))
        return good, None


def _unmoved(taken: Taken, epochs: list[int], fetcher: Fetcher) -> Taken:
    """Those that no seek and no rebalance has overtaken while a registry was asked."""
    return [
        (reader, records)
        for (reader, records), epoch in zip(taken, epochs, strict=True)
        if reader.epoch == epoch and fetcher.readers.get(reader.partition) is reader
    ]


def _deserialized(
    deserializer: Callable[[bytes], Any], data: bytes, record: ConsumerRecord, field: str
) -> Any:
    """What the deserializer makes of the bytes.

    Raises:
        _Undeserializable: it raised, whatever that was.
    """
    try:
        return deserializer(data)
    except Exception as error:
        raise _Undeserializable(_bad(record, field, error)) from error


class _Undeserializable(Exception):
    """Carries the error that the application gets, after the records before the bad one."""

    def __init__(self, bad: BadValue) -> None:
        super().__init__(str(bad))
        self.bad = bad


def _bad(record: ConsumerRecord, field: str, cause: Exception) -> BadValue:
    reason = str(cause) if isinstance(cause, ClientError) else f"{type(cause).__name__}: {cause}"
    error = BadValue(
        f"the {field} of the record at offset {record.offset} of {record.topic_partition} cannot "
        f"be deserialized: {reason}; the next poll continues after it"
    )
    error.record = record
    error.__cause__ = cause
    return error
