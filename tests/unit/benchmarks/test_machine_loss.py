"""What counts as lost with a machine, and which restored records are wrong."""

from dataclasses import dataclass

import pytest

from benchmarks.harness.numbered_load import value_of
from benchmarks.machine_loss import Loss, WrongRecord, check, loss, rows

SIZE = 32


@dataclass
class Message:
    """What a consumer gets."""

    at: tuple[int, int]
    content: bytes
    failure: str | None = None

    def error(self) -> str | None:
        return self.failure

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def value(self) -> bytes:
        return self.content


def test_lost_is_what_was_acknowledged_beyond_the_end() -> None:
    notes = [(10.0, 0, 64), (11.0, 1, 64), (12.0, 0, 128), (13.0, 1, 128), (14.0, 0, 192)]
    assert loss(notes, {0: 100, 1: 128}, 15.0) == (320, 92, 3.0)


def test_nothing_is_lost_where_more_was_restored_than_noted() -> None:
    assert loss([(10.0, 0, 64)], {0: 70}, 15.0) == (64, 0, 0.0)


def test_an_acknowledgement_noted_after_the_kill_has_no_negative_age() -> None:
    assert loss([(15.1, 0, 64)], {0: 0}, 15.0) == (64, 64, 0.0)


def test_the_records_that_were_sent_are_right() -> None:
    seen = {0: 0, 1: 0}
    for number in range(6):
        check(Message((number % 2, number // 2), value_of(number, SIZE)), seen, SIZE)
    assert seen == {0: 3, 1: 3}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message((1, 3), value_of(7, SIZE)), "partition 1 has 3 after 2 records"),
        (Message((1, 1), value_of(3, SIZE)), "partition 1 has 1 after 2 records"),
        (Message((1, 2), value_of(7, SIZE)), "offset 2 is not number 5"),
        (Message((1, 2), value_of(5, SIZE)[:-1] + b"y"), "offset 2 is not number 5"),
        (Message((1, 2), value_of(5, SIZE), "no such offset"), "no such offset after"),
    ],
    ids=["gap", "again", "another number", "damaged", "error"],
)
def test_another_record_is_wrong(message: Message, said: str) -> None:
    with pytest.raises(WrongRecord, match=said):
        check(message, {0: 3, 1: 2}, SIZE)


def test_the_last_row_has_the_medians() -> None:
    found = [Loss(8.0, 160.0, lost, 1.0, 0.2) for lost in (3.0, 9.0, 4.0)]
    assert rows(found)[-1] == ["median", "8.0", "160", "4.0", "1.00", "0.20"]
