"""Certificates of the listeners: read again when a file changes, and warned of before they expire.

Files are looked at every `INTERVAL_MS`, so that what renews them (certbot, a secret of Kubernetes,
which is a symbolic link that moves) needs no signal. A reload that fails keeps the certificate in
force; it is tried again once a file changes, or at SIGHUP. Files are read in another thread.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.security.tls.contexts import TlsContexts, TlsUnusable
from broker.threads import Pool

logger = logging.getLogger("tidelog.broker.jobs.certificates")

INTERVAL_MS: Final = 10_000
WARNING_DAYS: Final = (30, 7, 1, 0)
_DAY_MS: Final = 86_400_000


class CertificateWatch:
    """The background job over the TLS listeners; in the loop thread."""

    def __init__(
        self, contexts: Mapping[str, TlsContexts], wall_ms: Callable[[], int], threads: Pool
    ) -> None:
        """Watch the contexts, by name of their listener."""
        self._contexts = contexts
        self._wall_ms = wall_ms
        self._threads = threads
        self._warned: dict[str, tuple[str, int]] = {}

    async def run(self) -> None:
        """Read what has changed, then warn of what expires."""
        for name, contexts in self._contexts.items():
            if await self._threads.run(contexts.has_changed):
                await self._reload(name, contexts)
        self._warn()

    async def reload_all(self) -> None:
        """Read every key and certificate again, changed or not."""
        for name, contexts in self._contexts.items():
            await self._reload(name, contexts)
        self._warn()

    async def _reload(self, name: str, contexts: TlsContexts) -> None:
        now_ms = self._wall_ms()
        try:
            await self._threads.run(lambda: contexts.reload(now_ms))
        except TlsUnusable as error:
            logger.error(
                "listener %s keeps its certificate, which is valid for %d more days: %s; correct "
                "the files, they are read again when they change (docs/security.md)",
                name,
                max(0, contexts.certificate.not_after_ms - now_ms) // _DAY_MS,
                error,
            )
        else:
            logger.info(
                "listener %s: key and certificate are read again, %s is valid for %d days",
                name,
                contexts.certificate.subject,
                (contexts.certificate.not_after_ms - now_ms) // _DAY_MS,
            )

    def _warn(self) -> None:
        """One line per certificate and limit of `WARNING_DAYS`."""
        for name, contexts in self._contexts.items():
            certificate = contexts.certificate
            left_ms = certificate.not_after_ms - self._wall_ms()
            # One of a few days is renewed late in its life: no warning in the first two thirds.
            third_ms = (certificate.not_after_ms - certificate.not_before_ms) // 3
            passed = [days for days in WARNING_DAYS if left_ms <= min(days * _DAY_MS, third_ms)]
            state = certificate.fingerprint, min(passed, default=-1)
            if not passed or self._warned.get(name) == state:
                continue
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
