"""The delay of failed logins grows for an address that fails again and again, and for it alone."""

from broker.security.failed_logins import (
    ADDRESSES_MAX,
    DELAY_MAX_MS,
    FREE,
    WINDOW_MS,
    FailedLogins,
)
from tests.support.clock import FrozenClock


def test_the_delay_doubles_after_twenty_failures() -> None:
    clock = FrozenClock()
    failures = FailedLogins(clock.monotonic_ms, 100)
    assert [failures.count("10.0.0.1") for _ in range(FREE)] == [100] * FREE
    assert [failures.count("10.0.0.1") for _ in range(8)] == [
        *(200, 400, 800, 1600, 3200),
        *[DELAY_MAX_MS] * 3,
    ]
    for _ in range(100):
        failures.count("10.0.0.1")
    assert failures.count("10.0.0.1") == DELAY_MAX_MS
    assert failures.count("10.0.0.2") == 100, "another address"
    clock.advance(WINDOW_MS)
    assert failures.count("10.0.0.1") == 100, "a new window"


def test_a_delay_of_the_settings_is_never_cut_and_none_stays_none() -> None:
    clock = FrozenClock()
    longer, none = FailedLogins(clock.monotonic_ms, 8000), FailedLogins(clock.monotonic_ms, 0)
    for _ in range(3 * FREE):
        assert longer.count("10.0.0.1") == 8000
        assert none.count("10.0.0.1") == 0


def test_the_addresses_of_one_network_are_one() -> None:
    failures = FailedLogins(FrozenClock().monotonic_ms, 100)
    for number in range(FREE):
        failures.count(f"2001:db8:0:1::{number:x}")
    assert failures.count("2001:db8:0:1:ffff::1") == 200
    assert failures.count("2001:db8:0:2::1") == 100
    assert failures.count("fe80::1%eth0") == 100
    assert failures.count("no address: at all") == 100


def test_what_is_remembered_is_bounded_and_flooding_frees_no_one_at_once() -> None:
    failures = FailedLogins(FrozenClock().monotonic_ms, 100)
    for number in range(2 * ADDRESSES_MAX):
        failures.count(f"host-{number}")
        if number % 100 == 0:
            last = failures.count("10.0.0.1")
    assert len(failures._failed) == ADDRESSES_MAX
    assert last == DELAY_MAX_MS, "who fails all the time is not the oldest"
