"""Keys of identity providers: read again in time, and soon after a token names an unknown one.

Looked at every `INTERVAL_MS`; the settings say what is due. Keys are read in another thread. A
reading that fails is logged once, until one succeeds; the former keys stay in use.

Read next: `broker.security.oauth.keys`.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.security.oauth.keys import IdentityKeys
    from broker.threads import Pool

logger = logging.getLogger("tidelog.broker.jobs.identity_keys")

INTERVAL_MS: Final = 1000


class IdentityKeysWatch:
    """The background job over the listeners with OAUTHBEARER; in the loop thread."""

    def __init__(
        self, keys: "Mapping[str, IdentityKeys]", now_ms: Callable[[], int], threads: "Pool"
    ) -> None:
        """Watch the keys, by name of their listener."""
        self._keys = keys
        self._now_ms = now_ms
        self._threads = threads
        self._failing: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there are keys to watch."""
        return bool(self._keys)

    async def run(self) -> None:
        """Read the keys that are due."""
        for name, keys in self._keys.items():
            if keys.is_due(self._now_ms()):
                await self._reload(name, keys)

    async def reload_all(self) -> None:
        """Read all keys again, due or not."""
        for name, keys in self._keys.items():
            await self._reload(name, keys)

    async def _reload(self, name: str, keys: "IdentityKeys") -> None:
        from broker.security.oauth.keys import KeysUnusable  # there are keys, so it is installed

        now_ms = self._now_ms()
        try:
            await self._threads.run(lambda: keys.reload(now_ms))
        except KeysUnusable as error:
            if name not in self._failing:
                self._failing.add(name)
                logger.error(
                    "listener %s keeps the keys of its identity provider: %s; it is tried again "
                    "until it succeeds",
                    name,
                    error,
                )
        else:
            self._failing.discard(name)
            logger.info("listener %s: keys read from %s: %d", name, keys.url, len(keys))
