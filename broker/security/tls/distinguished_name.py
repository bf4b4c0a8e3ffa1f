"""The subject of an X.509 certificate, written as Java writes it.

Principals of a Kafka cluster that is moved here keep their rules only if names are equal to the
last character. Java's RFC 2253 form has the parts in reverse order and seven keywords; any other
attribute is its dotted number and the value's DER in hexadecimal. OpenSSL and other libraries
differ in the keywords, in the escapes, or in the order of parts with several values.

This reads as much DER as a name needs; the certificate itself was verified by OpenSSL.

Source: RFC 2253; Java `X500Principal.getName(RFC2253)`; Kafka `SslPrincipalMapper`.
"""

from collections.abc import Iterator
from typing import Final

_VERSION: Final = 0xA0
_SUBJECT: Final = 4
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXT_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1A: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED: Final = ',+"\\<>;#'


class MalformedName(ValueError):
    """The bytes are no certificate, or its subject is no name."""


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate (DER).

    Raises:
        MalformedName: it cannot be read.
    """
    try:
        return _name(certificate_fields(certificate)[_SUBJECT][1])
    except (IndexError, ValueError, StopIteration, UnicodeDecodeError) as error:
        raise MalformedName(f"the subject of a certificate cannot be read: {error}") from error


def certificate_fields(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """Serial number, signature, issuer, validity, subject, public key and what else there is.

    Raises:
        ValueError, IndexError, StopIteration: it is no certificate.
    """
    ((_, body, _),) = der_values(certificate)
    fields = list(der_values(next(der_values(body))[1]))
    return fields[1:] if fields[0][0] == _VERSION else fields


def _name(body: bytes) -> str:
    parts = []
    for _, relative, _ in der_values(body):
        attributes = []
        for _, attribute, _ in der_values(relative):
            (_, number, _), (tag, value, whole) = der_values(attribute)
            attributes.append(_attribute(dotted(number), tag, value, whole))
        parts.append("+".join(attributes))
    return ",".join(reversed(parts))


def _attribute(number: str, tag: int, value: bytes, whole: bytes) -> str:
    keyword = _KEYWORDS.get(number)
    encoding = _TEXT_ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(encoding))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in text)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(text) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped


def dotted(number: bytes) -> str:
    """An object identifier, such as 2.5.4.3."""
    values, value = [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    first = min(values[0] // 40, 2)
    return ".".join(str(part) for part in (first, values[0] - 40 * first, *values[1:]))


def der_values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The tag, content and whole encoding of each value in `data`. Raises MalformedName."""
    position = 0
    while position < len(data):
        start = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        if position + length > len(data):
            raise MalformedName("a value is longer than its place")
        yield tag, data[position : position + length], data[start : position + length]
        position += length
