"""Every public name of `tidelog.testing` is there, and others are refused."""

import pytest

from tidelog import testing


@pytest.mark.parametrize("name", testing.__all__)
def test_each_name_is_importable(name: str) -> None:
    assert getattr(testing, name).__name__ == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018
