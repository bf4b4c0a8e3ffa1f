"""Are the error codes Kafka's, all of them, and are the retriable ones marked?"""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from protocol.error_codes import ErrorCode


def test_codes_and_names_are_those_of_kafka() -> None:
    assert {code.name: int(code) for code in ErrorCode} == {
        code.name.upper(): int(code) for code in KioErrorCode
    }


def test_codes_leave_no_gap() -> None:
    assert sorted(ErrorCode) == list(range(-1, len(ErrorCode) - 1))


def test_retriable_codes_are_those_of_kafka() -> None:
    assert {code.name for code in ErrorCode if code.retriable} == {
        code.name.upper() for code in KioErrorCode if code.retriable
    }


def test_success_is_zero_and_final() -> None:
    assert int(ErrorCode.NONE) == 0
    assert not ErrorCode.NONE.retriable
