"""The fuzzing of SASL with few inputs, and a proof that it would find a fault."""

import pytest

from broker.principal import Principal, user
from tests.fuzz.driving import Machine, drive
from tests.fuzz.sasl import LOGINS, PIECES, REFUSALS, machines

INPUTS = 3_000


@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_logins_are_refused(seed: int) -> None:
    with machines() as all_machines:
        for name, machine in all_machines.items():
            tally = drive(machine, INPUTS, seed, expected=LOGINS)
            assert tally.findings == [], name
            assert tally.refused > INPUTS // 10, name


def test_a_fault_would_be_found() -> None:
    def careless(message: bytes) -> Principal | None:
        return user(message.decode().split("=")[1])

    machine = Machine(target=careless, seeds=(b"n=ann",), refusals=REFUSALS, pieces=PIECES)
    findings = drive(machine, INPUTS, 1).findings
    assert any("UnicodeDecodeError" in finding for finding in findings)
    assert any("IndexError" in finding for finding in findings)
    findings = drive(machine, INPUTS, 1, expected=LOGINS).findings
    assert any("gives User:" in finding for finding in findings)
