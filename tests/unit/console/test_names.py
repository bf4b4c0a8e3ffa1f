"""Names of groups in paths: what a browser or a proxy would change is written in digits."""

import pytest

from console.web.names import GroupConvertor

STRANGE = ["", ".", "..", "=", "=..", "a\nb", "\t", "a\x7f", "ü\n"]
PLAIN = ["billing", "a/b", "../..", "...", "50%", "%2e%2e", "a=b", " ", "ü", "x?y#z", "a/"]


@pytest.mark.parametrize("name", STRANGE + PLAIN)
def test_a_name_is_read_as_it_was_written(name: str) -> None:
    names = GroupConvertor()
    assert names.convert(names.to_string(name)) == name


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_name_is_written_in_digits(name: str) -> None:
    assert GroupConvertor().to_string(name) == "=" + name.encode().hex()


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name_is_written_as_it_is(name: str) -> None:
    assert GroupConvertor().to_string(name) == name


@pytest.mark.parametrize("text", ["=x", "=a", "=ff"])
def test_a_mark_without_digits_of_a_text_stays(text: str) -> None:
    assert GroupConvertor().convert(text) == text
