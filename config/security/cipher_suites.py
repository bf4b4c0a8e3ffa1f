"""The cipher suites of TLS that may be named, by their standard names, with those of OpenSSL.

All of them are forward secret. Suites with CBC are served only where they are named: old clients
may need them, and scanners warn of them. The suites of TLS 1.3 are served together or not at all:
Python cannot choose among them.

Source: RFC 8446, RFC 5289, RFC 7905, RFC 8422; the names of IANA's registry, which Java uses too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SUITES_OF_TLS_1_3: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)

_ENDINGS: Final = (
    ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
    ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    ("AES_256_CBC_SHA384", "AES256-SHA384"),
    ("AES_128_CBC_SHA256", "AES128-SHA256"),
    ("AES_256_CBC_SHA", "AES256-SHA"),
    ("AES_128_CBC_SHA", "AES128-SHA"),
)

SUITES_OF_TLS_1_2: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"TLS_ECDHE_{signature}_WITH_{name}": f"ECDHE-{signature}-{of_openssl}"
        for name, of_openssl in _ENDINGS
        for signature in ("ECDSA", "RSA")
    }
)
"""The name that OpenSSL has for each suite."""


def is_weak(suite: str) -> bool:
    """Whether scanners warn of `suite`."""
    return "_CBC_" in suite
