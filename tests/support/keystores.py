"""Writes JKS key stores, from the description of the format; tests with keytool are the judge."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final

_OID: Final = bytes.fromhex("060a2b060104012a02110101")


def jks(
    password: str,
    *,
    key: bytes | None = None,
    chain: Sequence[bytes] = (),
    trusted: Sequence[bytes] = (),
    key_password: str | None = None,
) -> bytes:
    """A store with a key (PKCS #8, DER) and its chain, and with trusted certificates."""
    entries = []
    if key is not None:
        protected = _protected(key, key_password or password)
        certificates = b"".join(map(_certificate, chain))
        head = _number(1) + _text("key") + bytes(8)
        entries.append(
            head + _number(len(protected)) + protected + _number(len(chain)) + certificates
        )
    for position, certificate in enumerate(trusted):
        entries.append(_number(2) + _text(f"ca{position}") + bytes(8) + _certificate(certificate))
    body = _number(0xFEEDFEED) + _number(2) + _number(len(entries)) + b"".join(entries)
    white = password.encode("utf-16-be") + b"Mighty Aphrodite"
    return body + hashlib.sha1(white + body).digest()


def _protected(key: bytes, password: str) -> bytes:
    secret = password.encode("utf-16-be")
    block = salt = secrets.token_bytes(20)
    stream = b""
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    hidden = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    data = salt + hidden + hashlib.sha1(secret + key).digest()
    return _der(0x30, _der(0x30, _OID + b"\x05\x00") + _der(0x04, data))


def _certificate(der: bytes) -> bytes:
    return _text("X.509") + _number(len(der)) + der


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
