"""What people and alarms need to know of a certificate: whose it is, for which hosts, until when.

Reads the few fields of the DER that the standard library does not give for an own certificate.

Source: RFC 5280.
"""

import hashlib
import ipaddress
from datetime import UTC, datetime
from typing import Final

from broker.security.tls.distinguished_name import (
    MalformedName,
    certificate_fields,
    der_values,
    dotted,
    subject_of,
)
from values.dataclasses import dataclass

_VALIDITY: Final = 3
UTC_TIME: Final = 0x17
_EXTENSIONS: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_DNS_NAME: Final = 0x82
_ADDRESS: Final = 0x87


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate in force.

    Attributes:
        subject: its subject, as in principals.
        names: the host names and addresses that it is valid for.
        fingerprint: SHA-256 of the DER, in hexadecimal.
        not_before_ms, not_after_ms: the first and the last millisecond, since the epoch.
    """

    subject: str
    names: tuple[str, ...]
    fingerprint: str
    not_before_ms: int
    not_after_ms: int


def read_certificate(der: bytes) -> Certificate:
    """The facts of a certificate (DER).

    Raises:
        MalformedName: it cannot be read.
    """
    try:
        fields = certificate_fields(der)
        begin, end = (time_ms(tag, text) for tag, text, _ in der_values(fields[_VALIDITY][1]))
        return Certificate(
            subject=subject_of(der),
            names=tuple(_names(fields)),
            fingerprint=hashlib.sha256(der).hexdigest(),
            not_before_ms=begin,
            not_after_ms=end,
        )
    except (IndexError, ValueError, StopIteration, UnicodeDecodeError) as error:
        raise MalformedName(f"a certificate cannot be read: {error}") from error


def time_ms(tag: int, text: bytes) -> int:
    """The moment that a value of DER stands for, UTCTime or GeneralizedTime.

    Raises:
        ValueError: it is none.
    """
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    moment = datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _names(fields: list[tuple[int, bytes, bytes]]) -> list[str]:
    names = []
    for tag, body, _ in fields:
        if tag != _EXTENSIONS:
            continue
        ((_, extensions, _),) = der_values(body)
        for _, extension, _ in der_values(extensions):
            parts = list(der_values(extension))
            if dotted(parts[0][1]) != _ALTERNATIVE_NAMES:
                continue
            ((_, entries, _),) = der_values(parts[-1][1])
            for kind, value, _ in der_values(entries):
                if kind == _DNS_NAME:
                    names.append(value.decode("ascii"))
                elif kind == _ADDRESS:
                    names.append(str(ipaddress.ip_address(value)))
    return names
