"""The address of an object store, and the lease of its bucket: which values they may have."""

from typing import Final
from urllib.parse import urlsplit

from config.errors import Problem
from config.model import BrokerConfig
from config.values import Value

LEASE_MS_MIN: Final = 3_000
"""The shortest lease: three round trips to a slow store have to fit into it."""

_BUCKETS: Final = ("s3", "gs", "az")
_SCHEMES: Final = (*_BUCKETS, "file", "memory")
"""`memory` is for tests: a store that ends with its process."""


def check_store_url(value: Value) -> str | None:
    """What is wrong with the address, in words; None when nothing is, or when it is empty."""
    if value == "":
        return None
    parts = urlsplit(str(value))
    if parts.scheme not in _SCHEMES:
        return f"not an address that begins with {', '.join(f'{one}:' for one in _SCHEMES)}"
    if parts.scheme in _BUCKETS and not parts.netloc:
        return f"it names no bucket; give {parts.scheme}://BUCKET/PREFIX"
    if parts.scheme == "file" and (parts.netloc or len(parts.path) < 2):
        return "a folder is file:///DIR, with an absolute path"
    if parts.query or parts.fragment or not {"@", ":"}.isdisjoint(parts.netloc):
        return "credentials and options belong into the environment, not into the address"
    return None


def check_lease(value: Value) -> str | None:
    """What is wrong with the span of a lease in ms, in words; None when nothing is."""
    if isinstance(value, int) and 0 < value < LEASE_MS_MIN:
        return f"too short to be renewed in time; use 0 for none, or {LEASE_MS_MIN} and more"
    return None


def store_problems(config: BrokerConfig) -> list[Problem]:
    """Settings of the store that need another one."""
    if not config.remote_lease_ms or config.remote_storage_url:
        return []
    return [
        Problem(
            "remote.lease.ms",
            str(config.remote_lease_ms),
            "there is no bucket whose owner could have a lease",
            "set remote.storage.url, or leave remote.lease.ms out",
        )
    ]
