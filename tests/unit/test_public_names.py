"""What users import: every name that the docs use, every error, and the version."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import tidelog
from client import errors
from tidelog import serde

ROOT = Path(__file__).resolve().parents[2]


def test_every_public_name_can_be_imported() -> None:
    assert sorted(tidelog.__all__) == tidelog.__all__
    for name in tidelog.__all__:
        assert getattr(tidelog, name).__name__ == name
    assert set(tidelog.__all__) <= set(dir(tidelog))


def test_every_error_of_the_client_is_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.ClientError)
    }
    assert defined <= set(tidelog.__all__)


def test_every_class_that_the_page_names_is_public() -> None:
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)`", page)) | set(
        re.findall(r"\b([A-Z][a-z]+[A-Z][A-Za-z]*)\(", page)
    )
    builtin = {"ValueError", "TypeError", "None", "True", "False"}
    assert len(named - builtin) > 8
    assert named - builtin <= {*tidelog.__all__, *serde.__all__}


def test_the_version_is_the_distributions() -> None:
    assert tidelog.__version__ == version("tidelog")


def test_what_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        tidelog.nope  # noqa: B018
