"""The lease of a bucket: which values it may have, and what it needs."""

from typing import Final

from config.errors import Problem
from config.model import BrokerConfig
from config.values import Value

LEASE_MS_MIN: Final = 3_000
"""The shortest lease: three round trips to a slow store have to fit into it."""


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
