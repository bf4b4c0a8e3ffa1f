"""Broker addresses as people write them, and security that fits together."""

from pathlib import Path
from typing import Any

import pytest

from client.core.options import ClusterOptions, Security, parse_bootstrap
from client.errors import InvalidType, InvalidUse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        (":19092", [("127.0.0.1", 19092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("::1", [("::1", 9092)]),
        ("PLAINTEXT://h:5", [("h", 5)]),
    ],
)
def test_addresses_are_understood(text: str, expected: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == expected


@pytest.mark.parametrize("text", ["", " , ", "h:port", "h:0", "h:65536", "h:\u00b2"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidUse, match="host:port"):
        parse_bootstrap(text)


def test_several_addresses_may_come_as_a_list() -> None:
    assert parse_bootstrap(["a:1", "b"]) == (("a", 1), ("b", 9092))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ca_file": "ca.pem"}, "ca_file='ca.pem' has no effect without TLS: give tls=True"),
        ({"tls": True, "key_file": "k"}, "key_file='k' belongs to no certificate"),
        ({"tls": 1}, "tls=1 is neither True nor False"),
        ({"tls": True, "ca_file": Path("x")}, "give the path as a str"),
        (
            {"mechanism": "GSSAPI", "username": "ann"},
            "choose PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTH",
        ),
        ({"mechanism": "PLAIN"}, "username is empty"),
        ({"mechanism": "PLAIN", "username": "ann"}, "password is empty, and PLAIN needs one"),
        ({"mechanism": "OAUTHBEARER"}, "give either token_file, or token, a function"),
        ({"mechanism": "OAUTHBEARER", "token_file": "t", "token": str}, "give either token_file"),
        ({"mechanism": "OAUTHBEARER", "token": "abc"}, "token is no function"),
        (
            {"mechanism": "OAUTHBEARER", "token_file": "t", "username": "ann"},
            "username='ann' is not sent by OAUTHBEARER",
        ),
        ({"token_file": "t"}, "are sent by OAUTHBEARER alone: give mechanism='OAUTHBEARER'"),
        ({"mechanism": "PLAIN", "username": "ann", "token": str}, "sent by OAUTHBEARER alone"),
        ({"username": "ann"}, "username='ann' is sent by no mechanism"),
    ],
)
def test_security_that_contradicts_itself_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(InvalidUse, match=message):
        Security(**fields)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", ["", "PLAIN"])
def test_the_protocol_is_named_as_listeners_are(tls: bool, mechanism: str) -> None:
    username, password = ("ann", "hush") if mechanism else ("", "")
    security = Security(tls=tls, mechanism=mechanism, username=username, password=password)
    sasl, below = "SASL_" if mechanism else "", "SSL" if tls else "PLAINTEXT"
    assert security.protocol == sasl + below


def test_secrets_are_in_no_repr() -> None:
    security = Security(
        tls=True, key_password="hush", mechanism="PLAIN", username="ann", password="hush"
    )
    assert "hush" not in repr(ClusterOptions(bootstrap=(("h", 1),), security=security))


@pytest.mark.parametrize(
    ("fields", "proof"),
    [
        ({}, ""),
        ({"tls": True, "certificate_file": "c.pem"}, "certificate"),
        ({"mechanism": "OAUTHBEARER", "token_file": "t"}, "token"),
        ({"mechanism": "PLAIN", "username": "ann", "password": "p"}, ""),
    ],
)
def test_the_user_of_a_token_or_a_certificate_has_a_name_that_only_the_broker_knows(
    fields: dict[str, Any], proof: str
) -> None:
    assert Security(**fields).proof == proof


@pytest.mark.parametrize("name", ["password", "username", "key_password"])
def test_a_secret_of_another_type_is_refused_and_not_shown(name: str) -> None:
    given: dict[str, Any] = {
        "mechanism": "PLAIN",
        "username": "u",
        "password": "p",
        name: b"hidden",
    }
    with pytest.raises(InvalidType, match=f"{name} is of the type bytes: give a str") as refused:
        Security(**given)
    assert "hidden" not in str(refused.value)
