"""Checks of callers' arguments, before anything is queued or sent.

A value of the wrong type that reaches the encoder fails far from the call that passed it, in a task
that others depend on. Each check names the argument, the value, the allowed values and the cure. It
knows types and ranges, and nothing of brokers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from client.errors import InvalidType, InvalidUse
from client.types import Header, OffsetAndMetadata, TopicPartition
from protocol.records.layout import INT64_MAX, INT64_MIN

INT32_MAX = 2**31 - 1

INT16_MAX = 2**15 - 1

_TEXT_BYTES_MAX = INT16_MAX
"""The longest text that a Kafka request can hold."""

_BYTES_LIKE = (bytearray, memoryview)


def check_number(name: str, value: object, least: int, most: int = INT32_MAX) -> None:
    """Refuse values other than whole numbers from `least` to `most`.

    Raises:
        InvalidType: it is not a whole number.
        InvalidUse: it is out of the range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{name}={value!r} is not a whole number: give {least} to {most}")
    if not least <= value <= most:
        raise InvalidUse(f"{name}={value} is out of range: give {least} to {most}")


def check_numbers(least: int, **values: object) -> None:
    """Each named value is a whole number from `least` to the 32-bit maximum, as `check_number`."""
    for name, value in values.items():
        check_number(name, value, least)


def check_offset(name: str, value: object) -> None:
    """Refuse values that are not an offset; raises as `check_number`."""
    check_number(name, value, 0, INT64_MAX)


def check_flags(**values: object) -> None:
    """Each named value is True or False.

    Raises:
        InvalidType: one is of another type.
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise InvalidType(f"{name}={value!r} is neither True nor False")


def check_called(**functions: object) -> None:
    """Each named value can be called.

    Raises:
        InvalidType: one cannot.
    """
    for name, function in functions.items():
        if not callable(function):
            raise InvalidType(f"{name}={function!r} cannot be called: give a function")


def check_text(name: str, value: object, *, errors: str = "strict") -> None:
    """Refuse names that a request cannot hold: other types, empty, too long, not Unicode.

    Raises:
        InvalidType: it is not a str.
        InvalidUse: it is empty, too long, or has characters that UTF-8 cannot encode.
    """
    if not isinstance(value, str):
        hint = f": decode it, {value!r}.decode()" if isinstance(value, bytes) else ""
        raise InvalidType(f"{name}={value!r} is {_kind(value)}, and a str is wanted{hint}")
    if not value:
        raise InvalidUse(f"{name} is empty: give a name")
    try:
        size = len(value.encode("utf-8", errors))
    except UnicodeEncodeError:
        raise InvalidUse(f"{name}={value!r} holds half a character: UTF-8 has no such") from None
    if size > _TEXT_BYTES_MAX:
        raise InvalidUse(f"{name} has {size} bytes in UTF-8: give {_TEXT_BYTES_MAX} at most")


def check_group(group_id: object) -> None:
    """Refuse what names no group, as `check_text`; old clients may have one with an empty name."""
    if group_id != "":
        check_text("group_id", group_id)


def check_texts(**values: object) -> None:
    """Each named value is None or passes `check_text`."""
    for name, value in values.items():
        if value is not None:
            check_text(name, value)


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse values that are not one of `choices`.

    Raises:
        InvalidUse: it is another value; a str or not.
    """
    known = list(choices)
    if value not in known:
        raise InvalidUse(f"there is no {name} {value!r}: choose {', '.join(known)}")


def check_topics(topics: Iterable[object], consumer: str) -> None:
    """Refuse invalid names of topics; the usual mistake is a list of topics.

    Raises:
        InvalidType: a name is not a str.
        InvalidUse: a name is not usable text.
    """
    for topic in topics:
        if isinstance(topic, list | tuple | set | frozenset):
            names = ", ".join(repr(name) for name in topic)
            raise InvalidType(
                f"topics are given one by one, not as a {type(topic).__name__}: "
                f"write {consumer}({names}) or {consumer}(*topics)"
            )
        check_text("topic", topic)


def check_sharing(group_id: object, instance_id: object, *, wait_for_topics: bool) -> None:
    """Refuse invalid names of a group and its member.

    Raises:
        InvalidType: a name is not a str.
        InvalidUse: a name is not usable text, or an option needs a group and there is none.
    """
    check_texts(group_id=group_id, group_instance_id=instance_id)
    if group_id is None and (instance_id is not None or wait_for_topics):
        name = "wait_for_topics" if wait_for_topics else "group_instance_id"
        raise InvalidUse(f"{name} needs a group_id")


def partition_of(value: object) -> TopicPartition:
    """A `TopicPartition`, which may be given as any pair of a topic and a number.

    Raises:
        InvalidType: it is not a pair, or of other types.
        InvalidUse: the name or the number is out of its range.
    """
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidType(f"{value!r} is not a partition: write TopicPartition(topic, number)")
    topic, number = value
    check_text("topic", topic)
    check_number("partition", number, 0)
    return TopicPartition(topic, number)


def pairs_of(name: str, value: object) -> Iterable[tuple[Any, Any]]:
    """The partitions of a mapping with what it gives for each.

    Raises:
        InvalidType: it is no mapping.
    """
    if not isinstance(value, Mapping):
        wanted = "write {TopicPartition(topic, number): ...}"
        raise InvalidType(f"{name} is {_kind(value)}, and a mapping is wanted: {wanted}")
    return value.items()


def partitions_of(name: str, value: object) -> list[TopicPartition]:
    """Partitions, of which each may be any pair of a topic and a number.

    Raises:
        InvalidType: it is no collection, or has something else in it.
        InvalidUse: a topic or a number is out of its range.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        wanted = "write [TopicPartition(topic, number), ...]"
        raise InvalidType(f"{name} is {_kind(value)}, and partitions are wanted: {wanted}")
    return [partition_of(one) for one in value]


def numbers_of(
    name: str, value: object, least: int = INT64_MIN, most: int = INT64_MAX
) -> dict[TopicPartition, int]:
    """A whole number for each of some partitions, such as a time or an offset.

    Raises:
        InvalidType: it is no mapping, or a key or a value is of another type.
        InvalidUse: a partition or a number is out of its range.
    """
    numbers = {partition_of(partition): number for partition, number in pairs_of(name, value)}
    for partition, number in numbers.items():
        check_number(f"{name}[{partition}]", number, least, most)
    return numbers


def settings_of(name: str, value: object) -> dict[str, str | None]:
    """Settings with their values as text; None where a value is taken back.

    Raises:
        InvalidType: it is no mapping, or a name or a value is of another type.
        InvalidUse: a name is not usable text.
    """
    if not isinstance(value, Mapping):
        wanted = 'write {"retention.ms": "1000"}'
        raise InvalidType(f"{name} is {_kind(value)}, and a mapping is wanted: {wanted}")
    for key, text in value.items():
        check_text(f"a name in {name}", key)
        if text is not None and not isinstance(text, str):
            raise InvalidType(
                f'{name}[{key!r}]={text!r} is {_kind(text)}, and a str is wanted: write "{text}"'
            )
    return dict(value)


def position_of(name: str, value: object) -> OffsetAndMetadata:
    """A position to commit, which may be given as a bare offset.

    Raises:
        InvalidType: it is neither.
        InvalidUse: the offset is negative or too large.
    """
    if isinstance(value, OffsetAndMetadata):
        check_offset(name, value.offset)
        if value.metadata:
            check_text(f"{name}.metadata", value.metadata)
        return value
    check_offset(name, value)
    assert isinstance(value, int)
    return OffsetAndMetadata(value)


def positions_of(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions to commit, by partition.

    Raises:
        InvalidType: it is no mapping, or a key or a value is of another type.
        InvalidUse: a partition or an offset is out of its range.
    """
    return {
        partition_of(partition): position_of(f"the offset of {partition}", value)
        for partition, value in pairs_of("offsets", offsets)
    }


def content_of(name: str, value: object) -> bytes | None:
    """The bytes of a key, a value or a header; buffers are copied, since they may change.

    Raises:
        InvalidType: it is neither bytes nor None.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, _BYTES_LIKE):
        return bytes(value)
    hint = f"encode it, {_shortened(value)}.encode()" if isinstance(value, str) else "encode it"
    raise InvalidType(f"the {name} is {_kind(value)}, and bytes or None are wanted: {hint}")


def headers_of(headers: object) -> tuple[Header, ...]:
    """Headers as pairs of a str and bytes; a mapping will do.

    Raises:
        InvalidType: they are not pairs, or of other types.
        InvalidUse: a name is not usable text.
    """
    pairs = headers.items() if isinstance(headers, dict) else headers
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise InvalidType(f"headers={headers!r} are no pairs: write [('name', b'value'), ...]")
    checked = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidType(f"the header {pair!r} is no pair: write ('name', b'value')")
        name, content = pair
        if name != "":
            # Bytes that are not UTF-8 are read with escapes, and may be written back unchanged.
            check_text("header name", name, errors="surrogateescape")
        checked.append((name, content_of(f"value of header {name!r}", content)))
    return tuple(checked)


def _kind(value: object) -> str:
    """The kind of a value, for a sentence, such as ``a str``."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _shortened(value: str) -> str:
    return repr(value if len(value) <= 20 else f"{value[:20]}...")
