"""Short forms for the rows of the two tables of settings; see `config.values.Key`."""

from collections.abc import Callable

from config.values import INT32_MAX, INT64_MAX, Key, Value, ValueType


def flag(name: str, default: bool, doc: str, *, dynamic: bool = False) -> Key:
    """A yes-or-no setting of the broker."""
    return Key(name=name, type=ValueType.BOOLEAN, default=default, doc=doc, dynamic=dynamic)


def number(
    name: str,
    default: int,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    dynamic: bool = False,
    wide: bool = False,
    check: Callable[[Value], str | None] | None = None,
) -> Key:
    """A whole-number setting of the broker; `wide` gives it 64 bits."""
    return Key(
        name=name,
        type=ValueType.LONG if wide else ValueType.INT,
        default=default,
        low=low,
        high=high if high is not None else (INT64_MAX if wide else INT32_MAX),
        doc=doc,
        dynamic=dynamic,
        check=check,
    )


def topic_number(
    name: str,
    default: int,
    doc: str,
    *synonyms: tuple[str, int],
    low: int = 0,
    high: int | None = None,
    wide: bool = True,
    aliases: tuple[str, ...] = (),
    check: Callable[[Value], str | None] | None = None,
) -> Key:
    """A whole-number setting of a topic; without synonyms the broker's name is `log.` + it."""
    return Key(
        name=name,
        type=ValueType.LONG if wide else ValueType.INT,
        default=default,
        low=low,
        high=high if high is not None else (INT64_MAX if wide else INT32_MAX),
        doc=doc,
        dynamic=True,
        synonyms=synonyms or ((f"log.{name}", 1),),
        aliases=aliases,
        check=check,
    )


def topic_word(
    name: str,
    default: str,
    choices: tuple[str, ...],
    doc: str,
    synonym: str | None = None,
) -> Key:
    """A topic setting with one of a few words as its value."""
    return Key(
        name=name,
        type=ValueType.STRING,
        default=default,
        choices=choices,
        doc=doc,
        dynamic=True,
        synonyms=((synonym or f"log.{name}", 1),),
    )


def topic_flag(name: str, default: bool, doc: str, synonym: str | None = None) -> Key:
    """A yes-or-no setting of a topic."""
    return Key(
        name=name,
        type=ValueType.BOOLEAN,
        default=default,
        doc=doc,
        dynamic=True,
        synonyms=((synonym or f"log.{name}", 1),),
    )
