"""Certificates of the listeners: read again when a file changes, and warned of before they expire.

Files are looked at every `INTERVAL_MS`, so that what renews them (certbot, a secret of Kubernetes,
which is a symbolic link that moves) needs no signal. A reload that fails keeps the certificate in
force; it is tried again once a file changes, or at SIGHUP.

Read next: `broker.security.tls.listeners`.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.security.tls.contexts import TlsContexts
from broker.security.tls.listeners import TlsListeners

logger = logging.getLogger("tidelog.broker.jobs.certificates")

INTERVAL_MS: Final = 10_000
WARNING_DAYS: Final = (30, 7, 1, 0)
_DAY_MS: Final = 86_400_000


class CertificateWatch:
    """The background job over the TLS listeners; in the loop thread."""

    def __init__(self, listeners: TlsListeners, wall_ms: Callable[[], int]) -> None:
        """Watch the certificates of `listeners`."""
        self._listeners = listeners
        self._wall_ms = wall_ms
        self._warned: dict[str, tuple[str, int]] = {}
        self._warned_of_lists: set[tuple[str, int]] = set()

    async def run(self) -> None:
        """Read what has changed, then warn of what expires."""
        await self._listeners.reload_changed()
        self._warn()

    async def reload_all(self) -> None:
        """Read every key and certificate again, changed or not."""
        await self._listeners.reload_all()
        self._warn()

    def _warn(self) -> None:
        """One line per certificate and limit of `WARNING_DAYS`, and per list that has ended."""
        for name, contexts in self._listeners.contexts.items():
            self._warn_of_certificate(name, contexts)
            end_ms = contexts.revocations_end_ms
            if end_ms is None or end_ms >= self._wall_ms():
                continue
            if (name, end_ms) not in self._warned_of_lists:
                self._warned_of_lists.add((name, end_ms))
                logger.error(
                    "listener %s: a revocation list in %s has ended, clients with certificates of "
                    "its authority are refused; put the next one in its place",
                    name,
                    contexts.settings.crl_location,
                )

    def _warn_of_certificate(self, name: str, contexts: TlsContexts) -> None:
        certificate = contexts.certificate
        left_ms = certificate.not_after_ms - self._wall_ms()
        # One of a few days is renewed late in its life: no warning in the first two thirds.
        third_ms = (certificate.not_after_ms - certificate.not_before_ms) // 3
        passed = [days for days in WARNING_DAYS if left_ms <= min(days * _DAY_MS, third_ms)]
        state = certificate.fingerprint, min(passed, default=-1)
        if not passed or self._warned.get(name) == state:
            return
        self._warned[name] = state
        if left_ms <= 0:
            logger.error(
                "listener %s: the certificate of %s has expired, clients refuse it; put a new "
                "one in its place",
                name,
                certificate.subject,
            )
        else:
            logger.warning(
                "listener %s: the certificate of %s expires in %d hours; put a new one in its "
                "place",
                name,
                certificate.subject,
                left_ms // 3_600_000,
            )
