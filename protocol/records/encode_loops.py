# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: embedsignature=True
# mypy: disable-error-code="untyped-decorator,valid-type,no-any-return"
"""The loop that writes one magic 2 record, the mirror of `record_loops`.

The third compiled module. It appends to a bytearray that the caller owns and knows only bytes and
numbers: what a delta counts from, which offset comes next and how text becomes bytes are
`builder`'s business. The layout is drawn in `record_loops`.

Source: Kafka `DefaultRecord.writeTo`. Read next: `builder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import cython
except ImportError:  # A wheel built without a compiler, on a machine without Cython.
    from protocol.records import cython_shim as cython

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.records.checksums import Buffer

COMPILED: bool = bool(cython.compiled)
"""Whether this module was compiled to machine code."""


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    """The unsigned number that a signed one is written as."""
    raw: cython.ulonglong
    if value < 0:
        raw = -(value + 1)
        return raw * 2 + 1
    raw = value
    return raw * 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(value: cython.longlong) -> cython.longlong:
    """Bytes that `value` takes as a zig-zag varint or varlong."""
    raw: cython.ulonglong = _zigzag(value)
    size: cython.longlong = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.exceptval(-1)
def _put_varint(out: bytearray, value: cython.longlong) -> cython.int:
    """Append `value` as a zig-zag varint; returns 0."""
    raw: cython.ulonglong = _zigzag(value)
    byte: cython.int
    while raw >= 0x80:
        byte = (raw & 0x7F) | 0x80
        out.append(byte)
        raw >>= 7
    byte = raw
    out.append(byte)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _nullable_size(value: Buffer | None) -> cython.longlong:
    """Bytes that a nullable value takes with its length."""
    size: cython.longlong
    if value is None:
        return 1
    size = len(value)
    return size + _varint_size(size)


@cython.cfunc
@cython.exceptval(-1)
def _put_nullable(out: bytearray, value: Buffer | None) -> cython.int:
    """Append a nullable value with its length; returns 0."""
    if value is None:
        _put_varint(out, -1)
        return 0
    _put_varint(out, len(value))
    out += value
    return 0


def encode_record(
    out: bytearray,
    offset_delta: cython.longlong,
    timestamp_delta: cython.longlong,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[bytes, Buffer | None]],
) -> None:
    """Append one magic 2 record to `out`; header keys are UTF-8 bytes."""
    size: cython.longlong = (
        1
        + _varint_size(timestamp_delta)
        + _varint_size(offset_delta)
        + _nullable_size(key)
        + _nullable_size(value)
        + _varint_size(len(headers))
    )
    for name, content in headers:
        size += _nullable_size(name) + _nullable_size(content)
    _put_varint(out, size)
    out.append(0)
    _put_varint(out, timestamp_delta)
    _put_varint(out, offset_delta)
    _put_nullable(out, key)
    _put_nullable(out, value)
    _put_varint(out, len(headers))
    for name, content in headers:
        _put_nullable(out, name)
        _put_nullable(out, content)
