"""CRC-32C by two independent implementations, and CRC-32, against published values."""

import builtins
import importlib.util
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from protocol.records import checksums
from protocol.records.checksums import crc32, crc32c


def without_hardware(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it comes up where the crc32c package cannot be imported."""
    ordinary_import, ordinary_find = builtins.__import__, importlib.util.find_spec

    def refuse(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name == "crc32c":
            raise ImportError(name)
        return ordinary_import(name, globals, locals, fromlist, level)

    def not_found(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "crc32c" else ordinary_find(name, package)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr(importlib.util, "find_spec", not_found)
    spec = importlib.util.spec_from_file_location("portable_checksums", checksums.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# RFC 3720, appendix B.4.
PUBLISHED = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_published_values(data: bytes, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    portable = without_hardware(monkeypatch)
    assert crc32c(data) == portable.crc32c(data) == expected


def test_fallback_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    portable = without_hardware(monkeypatch)
    assert portable.HARDWARE_CRC32C is False
    assert checksums.HARDWARE_CRC32C in (False, True)


@pytest.mark.parametrize("size", [1, 7, 8, 63, 64, 1000, 70_000])
def test_both_agree_on_views_and_seeds(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    portable = without_hardware(monkeypatch)
    data = bytearray(i * 31 % 251 for i in range(size + 3))
    view = memoryview(data)[3:]
    whole = crc32c(view)
    assert whole == portable.crc32c(view)
    half = size // 2
    for implementation in (checksums, portable):
        assert implementation.crc32c(view[half:], implementation.crc32c(view[:half])) == whole


def test_crc32_is_zlibs() -> None:
    assert crc32(b"123456789") == 0xCBF43926
    assert crc32(memoryview(b"6789"), crc32(b"12345")) == 0xCBF43926
