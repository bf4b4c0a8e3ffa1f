"""The table from exceptions to codes is total, and what it says is what clients expect."""

from collections.abc import Iterator

import pytest

from broker.errors import BrokerError, NotLeader, UnknownTopicId
from broker.requests.error_mapping import ERROR_CODES, REFUSALS, error_code
from config import ConfigErrors
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from storage import errors as storage_errors
from storage.errors import StorageError


def family(base: type[Exception]) -> Iterator[type[Exception]]:
    yield base
    for child in base.__subclasses__():
        yield from family(child)


@pytest.mark.parametrize(
    "cls",
    [
        cls
        for base in (ProtocolError, StorageError, BrokerError, ConfigErrors)
        for cls in family(base)
        if cls.__module__.split(".")[0] in ("protocol", "storage", "broker", "config")
        and not cls.__name__.startswith("_")
    ],
    ids=lambda cls: cls.__name__,
)
def test_every_exception_has_a_line_of_its_own(cls: type[Exception]) -> None:
    assert cls in ERROR_CODES
    assert issubclass(cls, REFUSALS)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (storage_errors.OffsetOutOfRange(5, start=0, end=3), 1),
        (storage_errors.CorruptBatch("x"), 2),
        (storage_errors.MessageTooLarge("x"), 10),
        (storage_errors.RecordListTooLarge("x"), 18),
        (storage_errors.InvalidTimestamp("x"), 32),
        (storage_errors.OutOfOrderSequence("x"), 45),
        (storage_errors.InvalidProducerEpoch("x"), 47),
        (storage_errors.LogOffline("/d", "x"), 56),
        (storage_errors.DiskFull("append", "/d", "x"), 56),
        (storage_errors.UnsupportedCompressionType("x"), 76),
        (storage_errors.InvalidRecord("x"), 87),
        (NotLeader("t", 0, 2), 6),
        (UnknownTopicId(bytes(16)), 100),
        (ConfigErrors.__new__(ConfigErrors), 40),
    ],
    ids=lambda value: getattr(type(value), "__name__", ""),
)
def test_code_is_kafkas(error: Exception, code: int) -> None:
    assert error_code(error) == code


def test_subclass_without_a_line_gets_its_parents_code() -> None:
    class Newer(storage_errors.MessageTooLarge):
        pass

    assert error_code(Newer("x")) is ErrorCode.MESSAGE_TOO_LARGE


def test_stranger_is_an_unknown_server_error() -> None:
    assert error_code(ZeroDivisionError()) is ErrorCode.UNKNOWN_SERVER_ERROR
