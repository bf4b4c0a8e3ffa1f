"""The option that `spark.where` writes: what it says is what is read back."""

import pytest

from pipeline.errors import BadOptions
from pipeline.options.narrowing import NO_LIMITS, Narrowing
from pipeline.options.options import SourceOptions, parse_source_options

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def parsed(text: str, *, is_stream: bool = False) -> SourceOptions:
    return parse_source_options({**BASE, "narrowTo": text}, is_stream=is_stream)


@pytest.mark.parametrize(
    "limits",
    [
        NO_LIMITS,
        Narrowing(oldest_ms=-5, newest_ms=7, first_offset=1, end_offset=2),
        Narrowing(partitions=frozenset({0, 2}), topics=frozenset({"a", 'b"'})),
        Narrowing(partitions=frozenset(), topics=frozenset()),
    ],
)
def test_limits_survive_the_option(limits: Narrowing) -> None:
    assert parsed(limits.to_option()).narrowing == limits


@pytest.mark.parametrize(
    "text",
    ["", "15", '{"oldest":5}', '{"oldestMs":"5"}', '{"oldestMs":true}', '{"partitions":["0"]}',
     '{"partitions":0}', '{"topics":[0]}', '{"endOffset":9223372036854775808}'],
)  # fmt: skip
def test_other_documents_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(BadOptions, match=r"option narrowTo=.*write JSON such as .* spark\.where"):
        parsed(text)


def test_a_stream_has_no_limits() -> None:
    with pytest.raises(BadOptions, match=r"option narrowTo=.*a stream reads every record"):
        parsed("{}", is_stream=True)
