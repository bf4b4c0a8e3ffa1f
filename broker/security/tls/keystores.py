"""Key stores of Java, as PEM: JKS is read here, PKCS12 by the library `cryptography`.

A JKS file has a header, entries, and a SHA-1 over the password and all of it. An entry is a private
key with its chain of certificates, or one trusted certificate. The key is encrypted by a password
of its own, usually that of the store. PKCS12 has one password for everything.

The first bytes of a file say which it is, not the setting: Java writes PKCS12 where it is asked for
JKS, and reads both under either name. Nothing is written to disk here.

Source: RFC 7292, KIP-651; the format of the JDK's `JavaKeyStore` and `KeyProtector`.
Read next: `broker.security.tls.contexts`.
"""

import base64
import hashlib
import hmac
import struct
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Final

from broker.security.tls.distinguished_name import certificate_fields, der_values, dotted
from values.dataclasses import dataclass

STORE_BYTES_MAX: Final = 16 * 1024 * 1024
CURE_FOR_PKCS12: Final = (
    "install tidelog[keystores] to read PKCS12, or convert the store: "
    "openssl pkcs12 -in STORE -out STORE.pem -nodes, and ssl.keystore.type=PEM"
)

_JKS_MAGIC: Final = 0xFEEDFEED
_JCEKS_MAGIC: Final = 0xCECECECE
_DER_SEQUENCE: Final = 0x30
_KEY_ENTRY, _TRUSTED_ENTRY = 1, 2
_WITH_CERTIFICATE_TYPES: Final = 2
"""The version of JKS since which each certificate says its type; older ones are all X.509."""

_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_ISSUER, _SUBJECT = 2, 4


class StoreUnusable(ValueError):
    """A key store cannot be read; the message says why, and never has a secret in it."""


@dataclass(slots=True, kw_only=True)
class Store:
    """What was found in a store, in DER.

    Attributes:
        key: the private key (PKCS #8), None without one.
        chain: its certificate and those of its issuers, in this order.
        trusted: the certificates that are there by themselves.
    """

    key: bytes | None = field(default=None, repr=False)
    chain: list[bytes] = field(default_factory=list)
    trusted: list[bytes] = field(default_factory=list)

    def key_and_chain(self) -> str:
        """The key and its chain as PEM.

        Raises:
            StoreUnusable: there is no key.
        """
        if self.key is None:
            raise StoreUnusable("it has no private key entry, only trusted certificates")
        if not self.chain:
            raise StoreUnusable("its private key has no certificate")
        return _pem("PRIVATE KEY", self.key) + "".join(_certificates(self.chain))

    def authorities(self) -> str:
        """The trusted certificates as PEM.

        Raises:
            StoreUnusable: there are none.
        """
        if not self.trusted:
            raise StoreUnusable(
                "it has no trusted certificate entry; import one with keytool -importcert"
            )
        return "".join(_certificates(self.trusted))


def read_store(content: bytes, password: str | None, key_password: str | None) -> Store:
    """The content of a key store or trust store.

    Args:
        content: the file.
        password: the store's password; without one a trust store in JKS is not verified.
        key_password: the key's password, if it is another one.

    Raises:
        StoreUnusable: wrong password, another format, or damaged.
    """
    if len(content) > STORE_BYTES_MAX:
        raise StoreUnusable(
            f"it has {len(content)} bytes; a key store has {STORE_BYTES_MAX} at most"
        )
    magic = int.from_bytes(content[:4], "big")
    try:
        if magic == _JKS_MAGIC:
            return _read_jks(content, password, key_password or password)
        if magic != _JCEKS_MAGIC and content[:1] == bytes([_DER_SEQUENCE]):
            return _read_pkcs12(content, password, key_password)
    except (IndexError, struct.error, StopIteration, UnicodeDecodeError) as error:
        raise StoreUnusable("it is damaged") from error
    raise StoreUnusable(_other_format(content, magic))


def is_store(content: bytes) -> bool:
    """Whether a file is a key store of Java rather than PEM, by its first bytes."""
    magic = int.from_bytes(content[:4], "big")
    return magic in (_JKS_MAGIC, _JCEKS_MAGIC) or content[:1] == bytes([_DER_SEQUENCE])


def _other_format(content: bytes, magic: int) -> str:
    if magic == _JCEKS_MAGIC:
        return (
            "it is JCEKS, which is not read; convert it: keytool -importkeystore "
            "-srckeystore STORE -destkeystore NEW -deststoretype PKCS12"
        )
    if b"-----BEGIN " in content:
        return "it is PEM; set the type of the store to PEM"
    return "it is neither JKS nor PKCS12"


# --- JKS ------------------------------------------------------------------------------------------


class _Reader:
    """Reads the fields of a JKS file one after another."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def number(self) -> int:
        """The next four bytes."""
        return int.from_bytes(self.take(4), "big")

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self._position + size
        if end > len(self._content):
            raise StoreUnusable("it is damaged: it ends in the middle of an entry")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def text(self) -> bytes:
        """The next text, not decoded."""
        return self.take(int.from_bytes(self.take(2), "big"))


def _read_jks(content: bytes, password: str | None, key_password: str | None) -> Store:
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password is not None:
        found = hashlib.sha1(_utf16(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(found, digest):
            raise StoreUnusable("the password of the store is wrong, or the file is damaged")
    reader = _Reader(body)
    _magic, version, entries = reader.number(), reader.number(), reader.number()
    if version not in (1, _WITH_CERTIFICATE_TYPES):
        raise StoreUnusable(f"it is JKS of version {version}; 1 and 2 are read")
    store = Store()
    for _ in range(entries):
        tag, _alias, _created = reader.number(), reader.text(), reader.take(8)
        if tag == _TRUSTED_ENTRY:
            store.trusted.append(_jks_certificate(reader, version))
        elif tag == _KEY_ENTRY:
            protected = reader.take(reader.number())
            chain = [_jks_certificate(reader, version) for _ in range(reader.number())]
            if store.key is None:
                store.key, store.chain = _unprotected(protected, key_password), chain
        else:
            raise StoreUnusable(f"it is damaged: an entry has the tag {tag}")
    return store


def _jks_certificate(reader: _Reader, version: int) -> bytes:
    if version == _WITH_CERTIFICATE_TYPES:
        kind = reader.text()
        if kind != b"X.509":
            raise StoreUnusable(f"it has a certificate of the type {kind.decode('latin-1')!r}")
    return reader.take(reader.number())


def _unprotected(protected: bytes, password: str | None) -> bytes:
    """The key that Java's own cipher protects: a key stream of SHA-1, then a checksum."""
    if password is None:
        raise StoreUnusable("its key is encrypted; set ssl.key.password or ssl.keystore.password")
    ((_, sequence, _),) = der_values(protected)
    (_, algorithm, _), (_, data, _) = der_values(sequence)
    cipher = dotted(next(der_values(algorithm))[1])
    if cipher != _PROTECTOR:
        raise StoreUnusable(f"its key is encrypted by {cipher}, which is not JKS")
    secret = _utf16(password)
    salt, encrypted, check = (
        data[:_DIGEST_BYTES],
        data[_DIGEST_BYTES:-_DIGEST_BYTES],
        data[-_DIGEST_BYTES:],
    )
    stream = b"".join(_key_stream(secret, salt, len(encrypted)))
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    found = hashlib.sha1(secret + key, usedforsecurity=False).digest()
    if not hmac.compare_digest(found, check):
        raise StoreUnusable("ssl.key.password does not decrypt its key")
    return key


def _key_stream(secret: bytes, salt: bytes, size: int) -> Iterator[bytes]:
    block = salt
    for _ in range(0, size, _DIGEST_BYTES):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        yield block


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


# --- PKCS12 ---------------------------------------------------------------------------------------


def _read_pkcs12(content: bytes, password: str | None, key_password: str | None) -> Store:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise StoreUnusable(f"it is PKCS12; {CURE_FOR_PKCS12}") from error
    if key_password is not None and key_password != password:
        raise StoreUnusable(
            "ssl.key.password is not ssl.keystore.password, but PKCS12 has one password"
        )
    secret = None if password is None else password.encode()
    try:
        found = pkcs12.load_pkcs12(content, secret)
    except UnsupportedAlgorithm as error:
        raise StoreUnusable(f"it is encrypted in a way that is not read: {error}") from error
    except ValueError as error:
        raise StoreUnusable("the password of the store is wrong, or the file is damaged") from error
    store = Store()
    others = [_der(other.certificate) for other in found.additional_certs]
    if found.key is None:
        store.trusted = [_der(found.cert.certificate)] if found.cert is not None else []
        store.trusted += others
        return store
    store.key = found.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    if found.cert is not None:
        store.chain = _chain(_der(found.cert.certificate), others)
    store.trusted = [other for other in others if other not in store.chain]
    return store


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    der: bytes = certificate.public_bytes(Encoding.DER)
    return der


def _chain(certificate: bytes, others: Sequence[bytes]) -> list[bytes]:
    """`certificate` and its issuers among `others`, which are in no order."""
    chain = [certificate]
    while True:
        issuer = certificate_fields(chain[-1])[_ISSUER][2]
        found = [
            other
            for other in others
            if other not in chain and certificate_fields(other)[_SUBJECT][2] == issuer
        ]
        if not found:
            return chain
        chain.append(found[0])


def _certificates(all_der: Sequence[bytes]) -> Iterator[str]:
    return (_pem("CERTIFICATE", der) for der in all_der)


def _pem(label: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"
