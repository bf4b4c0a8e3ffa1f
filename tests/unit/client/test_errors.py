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


WINDOW = "flights.__t__20261101T100000Z__20261101T110000Z"


@pytest.mark.parametrize(
    ("what", "code", "detail", "cure"),
    [
        (f"topic {WINDOW}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "time.windows.enable=true"),
        (f"topic {WINDOW}", ErrorCode.INVALID_TOPIC_EXCEPTION, None, "write to flights itself"),
        (f"producing to {WINDOW}-0", ErrorCode.INVALID_TOPIC_EXCEPTION, None, "flights itself"),
        ("topic f.__t__soon__", ErrorCode.INVALID_TOPIC_EXCEPTION, None, "FROM is 'soon'"),
        (
            "creating topic f.__t__soon__",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "FROM is 'soon' (names with .__t__ are time windows)",
            "write to the topic itself",
        ),
    ],
)
def test_the_cure_of_a_windows_name_is_that_of_windows(
    what: str, code: ErrorCode, detail: str | None, cure: str
) -> None:
    text = str(BrokerRefused(what, code, detail=detail))
    assert cure in text
    assert "1 to 249 letters" not in text
    assert "create the topic first" not in text


def test_the_cure_of_a_topics_name_is_that_of_topics() -> None:
    text = str(BrokerRefused("topic a b", ErrorCode.INVALID_TOPIC_EXCEPTION))
    assert "1 to 249 letters" in text
    other = str(BrokerRefused(f"reading {WINDOW}", ErrorCode.OFFSET_OUT_OF_RANGE))
    assert "window" not in other


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert error_code_of(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_retriable_codes_say_so() -> None:
    assert BrokerRefused("x", ErrorCode.NOT_LEADER_OR_FOLLOWER).retriable


def test_one_class_catches_all() -> None:
    assert issubclass(InvalidTime, ClientError)
    assert issubclass(InvalidTime, ValueError)


@pytest.mark.parametrize(
    ("user", "proof", "operation", "sentence"),
    [
        (
            "",
            "token",
            "WRITE",
            "the user of the token may not WRITE topic x (broker h:1); "
            "an admin can grant it: tidelog acl add --user NAME --produce x",
        ),
        (
            "bob",
            "",
            "WRITE",
            "user bob may not WRITE topic x (broker h:1); "
            "an admin can grant it: tidelog acl add --user bob --produce x",
        ),
        (
            "",
            "",
            "READ",
            "a client without a user may not READ topic x (broker h:1); an admin can grant it: "
            "tidelog acl add --user ANONYMOUS --consume x --group GROUP",
        ),
        (
            "Ann O'Neil",
            "",
            "DESCRIBE",
            "user Ann O'Neil may not DESCRIBE topic x (broker h:1); an admin can grant it: tidelog "
            "acl add --user 'Ann O'\"'\"'Neil' --produce x or --consume x --group GROUP",
        ),
    ],
)
def test_a_denial_names_the_user_and_the_command_that_grants_the_right(
    user: str, proof: str, operation: str, sentence: str
) -> None:
    denied = Denied(user=user, proof=proof, operation=operation, topic="x")
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    error = BrokerRefused("working", code, broker="h:1", denied=denied)
    assert str(error) == f"working: TOPIC_AUTHORIZATION_FAILED: {sentence}"
    other = BrokerRefused("working", ErrorCode.KAFKA_STORAGE_ERROR, denied=denied)
    assert "may not DESCRIBE" not in str(other)
    assert "or it may not write to its bucket" in str(other)


def test_the_right_to_a_window_is_the_right_to_its_topic() -> None:
    denied = Denied(user="bob", proof="", operation="READ", topic=WINDOW)
    assert denied.sentence == f"user bob may not READ topic {WINDOW}"
    assert denied.cure.endswith("tidelog acl add --user bob --consume flights --group GROUP")


def test_a_refused_deletion_of_a_group_names_the_right_that_it_takes() -> None:
    refused = BrokerRefused("deleting group g", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert "--op OPERATION --group GROUP for other work, such as delete" in str(refused)


def test_a_refused_consumer_of_a_share_group_is_named_the_share_consumer() -> None:
    refused = BrokerRefused("joining group g", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert "a share group is read by ShareConsumer" in str(refused)
