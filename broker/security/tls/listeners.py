"""The certificates of all TLS listeners of a broker, which change while it runs.

A listener's context is replaced when a file has changed (`reload_changed`), at SIGHUP
(`reload_all`), and when its settings change (`tried` for a request, `follow` for what is decided
already). A new context is built and tried in another thread before it is used. What cannot be used
changes nothing: connections are not touched, and new ones get the former certificate.

Only one replacement runs at a time, so an older certificate never replaces a newer one.

Source: KIP-226; Kafka `DynamicListenerConfig`, `SslFactory`.
Read next: `broker.security.tls.contexts`.
"""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker.security.tls.contexts import (
    Built,
    TlsContexts,
    TlsUnusable,
    check_successor,
    secrets_of,
)
from config.security.keys import STORE_KEYS, TlsSettings, listener_security, scoped_name

if TYPE_CHECKING:
    from broker.security.tls.certificate import Certificate
    from broker.threads import Pool
    from config import BrokerConfig

logger = logging.getLogger("tidelog.broker.security.tls.listeners")

_DAY_MS: Final = 86_400_000


class CertificateLog(Protocol):
    """What is asked of `broker.security.audit.Audit`."""

    def certificate(self, outcome: str, listener: str, shown: "Certificate", why: str = "") -> None:
        """A listener's key and certificate are `replaced`, `read again` as they were, or `kept`."""


class TlsListeners:
    """The contexts of one broker, by name of the listener. Loop thread only."""

    def __init__(
        self,
        contexts: Mapping[str, TlsContexts],
        wall_ms: Callable[[], int],
        threads: "Pool",
        audit: CertificateLog,
    ) -> None:
        """Replace contexts of `contexts`; files are read by `threads`."""
        self.contexts = contexts
        self._wall_ms = wall_ms
        self._threads = threads
        self._audit = audit
        self._one_at_a_time = asyncio.Lock()
        for name, listener in contexts.items():
            for path in secrets_of(listener.settings):
                _warn_of_readers(name, path)

    async def reload_changed(self) -> None:
        """Read again what has changed; a reload that fails is not repeated before the next one."""
        for name, contexts in self.contexts.items():
            if await self._threads.run(contexts.has_changed):
                await self._reload(name, contexts)

    async def reload_all(self) -> None:
        """Read every key and certificate again, changed or not."""
        for name, contexts in self.contexts.items():
            await self._reload(name, contexts)

    @asynccontextmanager
    async def tried(
        self, config: "BrokerConfig", given: Collection[str] = (), *, is_bound: bool = False
    ) -> AsyncIterator[Callable[[], None]]:
        """Build the contexts that `config` asks for; the result puts them in force.

        Until the end of the block no other context comes into force.

        Args:
            config: the settings to come.
            given: names of settings that a request gives. The stores among them are read again
                even if their setting has the former value.
            is_bound: whether the certificate must be for the subject and hosts of the former one.

        Raises:
            TlsUnusable: one cannot be used.
        """
        async with self._one_at_a_time:
            found: list[tuple[str, TlsContexts, Built]] = []
            for name, settings in self._wanted(config):
                contexts = self.contexts[name]
                stores = (scoped_name(name, key) for key in STORE_KEYS)
                if settings == contexts.settings and not any(key in given for key in stores):
                    continue
                try:
                    built = await self._built(contexts, settings)
                    if is_bound:
                        check_successor(settings, contexts.certificate, built.certificate)
                except TlsUnusable as error:
                    raise TlsUnusable(f"listener {name}: {error}") from error
                found.append((name, contexts, built))

            def put_in_force() -> None:
                for name, contexts, built in found:
                    former = contexts.certificate
                    contexts.use(built)
                    self._succeeded(name, contexts, former)

            yield put_in_force

    async def follow(self, config: "BrokerConfig") -> None:
        """Use the settings of `config`, which another worker has tried."""
        async with self._one_at_a_time:
            for name, settings in self._wanted(config):
                contexts = self.contexts[name]
                has_changed = partial(contexts.has_changed, settings)
                if not await self._threads.run(has_changed):
                    continue
                former = contexts.certificate
                try:
                    contexts.use(await self._built(contexts, settings))
                except TlsUnusable as error:
                    self._failed(name, contexts, error)
                else:
                    self._succeeded(name, contexts, former)

    async def _reload(self, name: str, contexts: TlsContexts) -> None:
        async with self._one_at_a_time:
            now_ms, former = self._wall_ms(), contexts.certificate
            try:
                await self._threads.run(lambda: contexts.reload(now_ms))
            except TlsUnusable as error:
                self._failed(name, contexts, error)
            else:
                self._succeeded(name, contexts, former)

    async def _built(self, contexts: TlsContexts, settings: TlsSettings) -> Built:
        now_ms = self._wall_ms()
        return await self._threads.run(lambda: contexts.built(settings, now_ms))

    def _wanted(self, config: "BrokerConfig") -> Iterable[tuple[str, TlsSettings]]:
        metrics = config.metrics_listener
        for listener in (*config.listeners, *([metrics] if metrics else [])):
            settings = listener_security(config, listener).tls
            if settings is not None and listener.name in self.contexts:
                yield listener.name, settings

    def _succeeded(self, name: str, contexts: TlsContexts, former: "Certificate") -> None:
        certificate = contexts.certificate
        logger.info(
            "listener %s: key and certificate are read again, %s is valid for %d days",
            name,
            certificate.subject,
            (certificate.not_after_ms - self._wall_ms()) // _DAY_MS,
        )
        is_same = certificate.fingerprint == former.fingerprint
        self._audit.certificate("read again" if is_same else "replaced", name, certificate)

    def _failed(self, name: str, contexts: TlsContexts, error: TlsUnusable) -> None:
        logger.error(
            "listener %s keeps its certificate, which is valid for %d more days: %s; correct "
            "the files, they are read again when they change (tidelog docs security)",
            name,
            max(0, contexts.certificate.not_after_ms - self._wall_ms()) // _DAY_MS,
            error,
        )
        self._audit.certificate("kept", name, contexts.certificate, str(error))


def _warn_of_readers(listener: str, path: str) -> None:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        logger.warning(
            "listener %s: others may read or write %s (mode %04o), which has a secret; chmod 600 "
            "or 640 it",
            listener,
            path,
            mode,
        )
