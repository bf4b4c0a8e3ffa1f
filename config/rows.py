"""Short forms for the rows of the tables of settings; see `config.values.Key`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypedDict, Unpack

from config.values import INT16_MAX, INT32_MAX, INT64_MAX, Key, Value, ValueType


class _More(TypedDict, total=False):
    """What most rows leave out, as in `Key`."""

    low: int
    high: int
    choices: tuple[str, ...]
    ignores_case: bool
    dynamic: bool
    aliases: tuple[str, ...]
    check: Callable[[Value], str | None]
    form: str


def flag(name: str, default: bool, doc: str, **more: Unpack[_More]) -> Key:
    """A yes-or-no setting."""
    return Key(name=name, type=ValueType.BOOLEAN, default=default, doc=doc, **more)


def number(name: str, default: int, doc: str, *, wide: bool = False, **more: Unpack[_More]) -> Key:
    """A whole-number setting, from 1 on unless `low` says otherwise; `wide` gives it 64 bits."""
    more.setdefault("low", 1)
    more.setdefault("high", INT64_MAX if wide else INT32_MAX)
    kind = ValueType.LONG if wide else ValueType.INT
    return Key(name=name, type=kind, default=default, doc=doc, **more)


def word(name: str, default: str, doc: str, **more: Unpack[_More]) -> Key:
    """A setting that is one text."""
    return Key(name=name, type=ValueType.STRING, default=default, doc=doc, **more)


def words(name: str, default: tuple[str, ...], doc: str, **more: Unpack[_More]) -> Key:
    """A setting that is a list."""
    return Key(name=name, type=ValueType.LIST, default=default, doc=doc, **more)


def secret(name: str, doc: str, **more: Unpack[_More]) -> Key:
    """A setting whose value is shown nowhere."""
    return Key(name=name, type=ValueType.PASSWORD, default="", doc=doc, **more)


def internal_topic(prefix: str, topic: str) -> Iterator[Key]:
    """The settings of a topic that the broker makes for itself."""
    doc = f"Partitions of {topic} when it is created. Kafka has 50; one syncs all writes together."
    yield number(f"{prefix}.num.partitions", 1, doc, high=1000)
    doc = "Accepted for compatibility: one node has one replica."
    yield number(f"{prefix}.replication.factor", 1, doc, high=INT16_MAX)
    yield number(f"{prefix}.segment.bytes", 104_857_600, f"Segment size of {topic}.", low=1024)


def of_topic(key: Key, *synonyms: tuple[str, int]) -> Key:
    """The setting as one of topics; without synonyms the broker's name is `log.` + it."""
    return replace(key, dynamic=True, synonyms=synonyms or ((f"log.{key.name}", 1),))


def topic_number(
    name: str,
    default: int,
    doc: str,
    *synonyms: tuple[str, int],
    wide: bool = True,
    **more: Unpack[_More],
) -> Key:
    """A whole-number setting of a topic, from 0 on unless `low` says otherwise."""
    more.setdefault("low", 0)
    return of_topic(number(name, default, doc, wide=wide, **more), *synonyms)


def topic_word(
    name: str, default: str, choices: tuple[str, ...], doc: str, synonym: str | None = None
) -> Key:
    """A topic setting with one of a few words as its value."""
    return of_topic(word(name, default, doc, choices=choices), (synonym or f"log.{name}", 1))


def topic_flag(name: str, default: bool, doc: str, synonym: str | None = None) -> Key:
    """A yes-or-no setting of a topic."""
    return of_topic(flag(name, default, doc), (synonym or f"log.{name}", 1))
