"""Messages say what, where and how to help it."""

import pytest

from client.errors import BrokerRefused, ClientError, Denied, InvalidTime, error_code_of
from protocol.error_codes import ErrorCode


def test_a_refusal_names_request_code_detail_broker_and_cure() -> None:
    error = BrokerRefused(
        "creating topic a", ErrorCode.TOPIC_ALREADY_EXISTS, broker="h:1", detail="it is there."
    )
    assert str(error) == (
        "creating topic a: TOPIC_ALREADY_EXISTS: it is there (broker h:1); "
        "choose another name, or delete the topic first"
    )
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert not error.retriable


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert error_code_of(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_retriable_codes_say_so() -> None:
    assert BrokerRefused("x", ErrorCode.NOT_LEADER_OR_FOLLOWER).retriable


def test_one_class_catches_all() -> None:
    assert issubclass(InvalidTime, ClientError)
    assert issubclass(InvalidTime, ValueError)


@pytest.mark.parametrize(
    ("user", "operation", "sentence"),
    [
        (
            "bob",
            "WRITE",
            "user bob may not WRITE topic x (broker h:1); "
            "an admin can grant it: tidelog acl add --user bob --produce x",
        ),
        (
            "",
            "READ",
            "a client without a user may not READ topic x (broker h:1); an admin can grant it: "
            "tidelog acl add --user ANONYMOUS --consume x --group GROUP",
        ),
        (
            "Ann O'Neil",
            "DESCRIBE",
            "user Ann O'Neil may not DESCRIBE topic x (broker h:1); an admin can grant it: tidelog "
            "acl add --user 'Ann O'\"'\"'Neil' --produce x or --consume x --group GROUP",
        ),
    ],
)
def test_a_denial_names_the_user_and_the_command_that_grants_the_right(
    user: str, operation: str, sentence: str
) -> None:
    denied = Denied(user=user, operation=operation, topic="x")
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    error = BrokerRefused("working", code, broker="h:1", denied=denied)
    assert str(error) == f"working: TOPIC_AUTHORIZATION_FAILED: {sentence}"
    other = BrokerRefused("working", ErrorCode.KAFKA_STORAGE_ERROR, denied=denied)
    assert "may not" not in str(other)
