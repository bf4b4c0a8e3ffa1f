"""Which kinds of failed logins are said to stand out: a leak is, a neighbour on the machine not."""

import random

import pytest

from benchmarks import login_times

KINDS = ("right", "far", "near", "unknown", "unknown far")


def rounds(leak_ns: int, seed: int) -> list[dict[str, int]]:
    """Times as of a loaded machine: noise, now and then a pause, and `near` slower by `leak_ns`."""
    source = random.Random(seed)
    found = []
    for number in range(4000):
        drift = 20_000 if number > 2000 else 0
        times = {
            kind: 35_000 + drift + source.randrange(4000)
            + (10_000_000 if source.random() < 0.01 else 0)
            for kind in KINDS
        }  # fmt: skip
        times["near"] += leak_ns
        found.append(times)
    return found


def judged(monkeypatch: pytest.MonkeyPatch, *leaks_ns: int) -> set[str]:
    given = iter([rounds(leak_ns, seed) for seed, leak_ns in enumerate(leaks_ns)])
    monkeypatch.setattr(login_times, "measure", lambda *_: next(given))
    kinds = dict.fromkeys(KINDS, lambda number: lambda: None)
    return login_times.kinds_that_stand_out("X", kinds, 4000, random.Random(1))


def test_noise_pauses_and_drift_are_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, 0) == set()


def test_a_leak_stands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, 500, 500) == {"near"}


def test_one_bad_run_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, 5000, 0) == set()
    assert judged(monkeypatch, 5000, -5000) == set()


def test_the_least_difference_that_shows_is_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(monkeypatch, 0)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("near")]
    assert 0.05 < float(line.split()[-1]) < 0.5


def test_attempts_of_all_kinds_are_mixed() -> None:
    asked: list[str] = []

    def kind(name: str) -> object:
        return lambda number: lambda: asked.append(name)

    found = login_times.measure(
        {name: kind(name) for name in KINDS}, 200, random.Random(1)  # type: ignore[misc]
    )  # fmt: skip
    assert len(found) == 200
    assert {asked[number] for number in range(0, 1000, 5)} == set(KINDS)
