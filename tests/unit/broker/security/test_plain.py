"""PLAIN: passwords against the keys of SCRAM, and comparisons that say nothing by their time."""

import hmac

import pytest

from broker.security.credentials import Credentials, format_credential
from broker.security.mechanism import AuthenticationFailed
from broker.security.plain import PasswordCache, PlainExchange
from broker.security.scram import ScramMechanism, new_credential

SHA_512 = ScramMechanism.SCRAM_SHA_512


def log_in(credentials: Credentials, cache: PasswordCache, name: str, password: str) -> str:
    """The principal of a login, or the reason why it fails."""
    exchange = PlainExchange(credentials.for_password, cache)
    try:
        principal = exchange.step(f"\0{name}\0{password}".encode()).principal
    except AuthenticationFailed as failed:
        return failed.reason
    return str(principal)


@pytest.fixture
def credentials() -> Credentials:
    pencil = format_credential(new_credential(SHA_512, "pencil", iterations=4096))
    return Credentials({"SCRAM-SHA-512/alice": pencil}, secret=bytes(32))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The lengths of what is compared, in order."""
    lengths: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noting(left: bytes, right: bytes) -> bool:
        lengths.append((len(left), len(right)))
        return compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    return lengths


def test_all_users_are_compared_at_the_same_length(
    credentials: Credentials, compared: list[tuple[int, int]]
) -> None:
    """One who has logged in before, one who has not, and one who does not exist."""
    cache = PasswordCache()
    first = [(32, 32), (64, 64)]  # the digest of the cache, then the stored key
    assert log_in(credentials, cache, "alice", "wrong") == "credentials"
    assert compared == first
    compared.clear()
    assert log_in(credentials, cache, "alice", "pencil") == "User:alice"
    assert compared == first
    compared.clear()
    assert log_in(credentials, cache, "alice", "pencil") == "User:alice"
    assert compared == [(32, 32)]
    for name in ("alice", "stranger"):
        compared.clear()
        assert log_in(credentials, cache, name, "wrong") == "credentials"
        assert compared == first


def test_a_changed_password_ends_what_the_cache_knows(credentials: Credentials) -> None:
    cache = PasswordCache()
    assert log_in(credentials, cache, "alice", "pencil") == "User:alice"
    eraser = format_credential(new_credential(SHA_512, "eraser", iterations=4096))
    credentials.apply({"SCRAM-SHA-512/alice": eraser})
    assert log_in(credentials, cache, "alice", "pencil") == "credentials"
    assert log_in(credentials, cache, "alice", "eraser") == "User:alice"
