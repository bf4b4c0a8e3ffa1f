"""Revocation lists: which certificates of clients are refused although an authority signed them.

OpenSSL looks a client's certificate up in the list of its authority, and verifies the list's
signature and dates. Read here: that a file has lists at all, and from when to when they are in
force.

Source: RFC 5280, chapter 5.
"""

import base64
import binascii
import re
from typing import Final

from broker.security.tls.certificate import UTC_TIME, time_ms
from broker.security.tls.distinguished_name import der_values

_LIST: Final = re.compile(
    r"-----BEGIN X509 CRL-----([A-Za-z0-9+/=\s]+)-----END X509 CRL-----", re.ASCII
)
_GENERALIZED_TIME: Final = 0x18
_THIS_UPDATE, _NEXT_UPDATE = 0, 1
"""Where they stand among the times of a list; the second may be missing."""


class RevocationsUnusable(Exception):
    """A file has no revocation list that can be read; the message says why."""


def lists_in(text: str) -> list[str]:
    """The revocation lists of a PEM file, each in PEM; all else in the file is left out.

    Raises:
        RevocationsUnusable: there is none.
    """
    found = [match[0] for match in _LIST.finditer(text)]
    if not found:
        raise RevocationsUnusable("there is no revocation list in PEM (X509 CRL) in it")
    return found


def in_force_ms(pem: str) -> tuple[int, int | None]:
    """The first millisecond at which a list is in force, and the last; None if it says no end.

    Raises:
        RevocationsUnusable: it cannot be read.
    """
    match = _LIST.fullmatch(pem)
    assert match is not None
    try:
        der = base64.b64decode("".join(match[1].split()), validate=True)
        ((_, outer, _),) = der_values(der)
        _, to_be_signed, _ = next(iter(der_values(outer)))
        times = [
            time_ms(tag, body)
            for tag, body, _ in der_values(to_be_signed)
            if tag in (UTC_TIME, _GENERALIZED_TIME)
        ]
        begin_ms = times[_THIS_UPDATE]
    except (ValueError, StopIteration, IndexError, binascii.Error) as error:
        raise RevocationsUnusable(f"a revocation list cannot be read: {error}") from error
    return begin_ms, times[_NEXT_UPDATE] if len(times) > _NEXT_UPDATE else None
