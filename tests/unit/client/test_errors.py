"""Messages say what, where and how to help it."""

from client.errors import BrokerRefused, ClientError, InvalidTime, error_code_of
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
