"""Which target partition a row goes to, decided in Spark as every Kafka client decides it.

A plain Spark expression: no row goes to a Python worker for it. Spark has no murmur2, so it is made
here of what Spark has. All numbers are unsigned 32 bits in a bigint: the product of such a number
and the multiplier is below 2^63, so nothing overflows where Spark would refuse it (ANSI mode).

Source: org.apache.kafka.common.utils.Utils.murmur2; `client.partitioner`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from client.partitioner import POSITIVE

if TYPE_CHECKING:
    from pyspark.sql import Column

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK_32: Final = 0xFFFFFFFF
_WORD_BYTES: Final = 4


def choose_partition(key: Column, count: int) -> Column:
    """One of `count` partitions for each value of a binary column.

    A null goes where an empty key goes: any partition is good that is always the same.
    """
    from pyspark.sql import functions as F

    state = _murmur2(F.coalesce(key, F.lit(b"")))
    return (state.bitwiseAND(_number(POSITIVE)) % count).cast("int")


def _murmur2(key: Column) -> Column:
    from pyspark.sql import functions as F

    length = F.length(key)
    words = F.shiftright(length, 2)
    # A sequence from 1 to 0 would count down, so there is none.
    places = F.when(words > 0, F.sequence(F.lit(1), words))
    places = F.coalesce(places, F.array().cast("array<int>"))
    state = F.aggregate(
        places,
        _number(_SEED).bitwiseXOR(length.cast("bigint")),
        lambda known, place: _times(known).bitwiseXOR(
            _scrambled(_word(key, place * _WORD_BYTES - (_WORD_BYTES - 1)))
        ),
    )
    rest = _word(key, words * _WORD_BYTES + 1)
    mixed = F.when(length % _WORD_BYTES > 0, _times(state.bitwiseXOR(rest))).otherwise(state)
    multiplied = _with(mixed, lambda known: _times(_shifted(known, 13)))
    return _with(multiplied, lambda known: _shifted(known, 15))


def _word(key: Column, place: Column) -> Column:
    """The little-endian number of the four bytes from `place` on (1 is the first).

    The bytes that `key` lacks are 0.
    """
    from pyspark.sql import functions as F

    four = F.rpad(F.substring(key, place, F.lit(_WORD_BYTES)), _WORD_BYTES, F.lit(b"\0"))
    big_endian = F.conv(F.hex(four), 16, 10).cast("bigint")
    return _with(
        big_endian,
        lambda number: (
            F.shiftleft(number.bitwiseAND(_number(0xFF)), 24)
            .bitwiseOR(F.shiftleft(number.bitwiseAND(_number(0xFF00)), 8))
            .bitwiseOR(F.shiftright(number, 8).bitwiseAND(_number(0xFF00)))
            .bitwiseOR(F.shiftright(number, 24))
        ),
    )


def _scrambled(word: Column) -> Column:
    return _with(_times(word), lambda number: _times(_shifted(number, 24)))


def _shifted(number: Column, bits: int) -> Column:
    from pyspark.sql import functions as F

    return number.bitwiseXOR(F.shiftright(number, bits))


def _times(number: Column) -> Column:
    return (number * _number(_MULTIPLIER)).bitwiseAND(_number(_MASK_32))


def _number(value: int) -> Column:
    from pyspark.sql import functions as F

    return F.lit(value).cast("bigint")


def _with(value: Column, make: Callable[[Column], Column]) -> Column:
    """`make(value)`, with `value` computed once however often `make` uses it."""
    from pyspark.sql import functions as F

    return F.element_at(F.transform(F.array(value), make), 1)
