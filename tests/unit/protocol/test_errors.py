"""Do protocol errors say what, where, and nothing of the payload?"""

from __future__ import annotations

import pytest

from protocol import errors


def test_every_error_is_a_protocol_error() -> None:
    family = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(family) == 9
    assert all(issubclass(cls, errors.ProtocolError) for cls in family)


@pytest.mark.parametrize(
    "cls",
    [
        errors.CorruptRecords,
        errors.InvalidRecords,
        errors.UnsupportedCompression,
        errors.DecompressionLimitExceeded,
    ],
)
def test_record_faults_form_a_family(cls: type) -> None:
    assert issubclass(cls, errors.RecordsError)


def test_malformed_request_names_message_field_and_position() -> None:
    error = errors.MalformedRequest("FetchRequest v4", "topics[0].topic", 31, "null")
    assert str(error) == "FetchRequest v4.topics[0].topic at byte 31: null"
    assert (error.message, error.field, error.position, error.problem) == (
        "FetchRequest v4",
        "topics[0].topic",
        31,
        "null",
    )


def test_malformed_request_without_field_or_position_stays_readable() -> None:
    assert str(errors.MalformedRequest("RequestHeader", "", -1, "short")) == "RequestHeader: short"


def test_malformed_frame_names_size_and_limit() -> None:
    error = errors.MalformedFrame(-1, 100)
    assert str(error) == "frame of -1 bytes is outside 1..100"
    assert (error.size, error.limit) == (-1, 100)


def test_unsupported_version_names_the_pair() -> None:
    error = errors.UnsupportedVersion(18, 9)
    assert (error.api_key, error.api_version) == (18, 9)
    assert str(error) == "API key 18 has no version 9"
