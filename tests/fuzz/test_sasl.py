"""The fuzzing of SASL with few inputs, and a proof that it would find a fault."""

import pytest

from broker.principal import Principal, user
from tests.fuzz.sasl import drive, machines

INPUTS = 3_000


@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_logins_are_refused(seed: int) -> None:
    with machines() as all_machines:
        for name, (target, seeds) in all_machines.items():
            tally = drive(target, seeds, INPUTS, seed)
            assert tally.findings == [], name
            assert tally.refused > INPUTS // 10, name


def test_a_fault_would_be_found() -> None:
    def careless(message: bytes) -> Principal | None:
        return user(message.decode().split("=")[1])

    findings = drive(careless, (b"n=ann",), INPUTS, 1).findings
    assert any("UnicodeDecodeError" in finding for finding in findings)
    assert any("IndexError" in finding or "is a login as" in finding for finding in findings)
