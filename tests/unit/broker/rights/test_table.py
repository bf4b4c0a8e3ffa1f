"""Every API that is served asks for rights, or is free on purpose."""

from broker.rights.table import FREE, GUARDS
from protocol.api_keys import SUPPORTED


def test_every_api_has_a_guard_or_is_free() -> None:
    assert set(SUPPORTED) - set(GUARDS) - FREE == set()
    assert GUARDS.keys() & FREE == set()
    assert (GUARDS.keys() | FREE) - set(SUPPORTED) == set()
