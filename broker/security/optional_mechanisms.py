"""Mechanisms whose libraries are extras: imported once a listener offers them, else a clear error.

Read next: `broker.security.oauth`, `broker.security.kerberos`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.clocks.clock import Clock
from broker.security.mechanism import MechanismUnusable, SaslExchange
from config.security.keys import KerberosSettings, OAuthSettings
from config.values import Secret

logger = logging.getLogger("tidelog.broker.security.optional_mechanisms")

if TYPE_CHECKING:
    from broker.security.oauth.keys import IdentityKeys


def oauth_bearer(
    settings: OAuthSettings, clock: Clock
) -> "tuple[IdentityKeys | None, Callable[[], SaslExchange]]":
    """The keys of the identity provider, read now, and a function that begins an exchange.

    Raises:
        MechanismUnusable: the keys cannot be read, or PyJWT is not installed.
    """
    try:
        from broker.security.oauth.exchange import OAuthBearerExchange
        from broker.security.oauth.tokens import TokenVerifier
    except ImportError as error:
        raise _not_installed("OAUTHBEARER", "oauth", error) from error
    keys = None
    if settings.unsecured:
        logger.warning(
            "sasl.oauthbearer.unsecured: tokens need no signature, so anyone may be any user"
        )
    else:
        keys = read_identity_keys(settings, clock.monotonic_ms())
    return keys, partial(OAuthBearerExchange, TokenVerifier(settings, keys), clock.wall_ms)


def read_identity_keys(settings: OAuthSettings, now_ms: int) -> "IdentityKeys":
    """The keys of an identity provider, read at `now_ms` of a monotonic clock; blocks.

    Raises:
        MechanismUnusable: they cannot be read, or PyJWT is not installed.
    """
    try:
        from broker.security.oauth.keys import IdentityKeys, KeysUnusable
    except ImportError as error:
        raise _not_installed("OAUTHBEARER", "oauth", error) from error
    try:
        return IdentityKeys(settings, now_ms=now_ms)
    except KeysUnusable as error:
        raise MechanismUnusable(str(error)) from error


def kerberos(
    settings: KerberosSettings, reveal: Callable[[Secret], str]
) -> Callable[[], SaslExchange]:
    """A function that begins an exchange; `reveal` reads the text of a secret.

    Raises:
        MechanismUnusable: there is no key for the broker, the rules are none, or gssapi is not
            installed.
    """
    try:
        from broker.security.kerberos.exchange import GssapiExchange, acceptor
    except ImportError as error:
        raise _not_installed("GSSAPI", "kerberos", error) from error
    return partial(GssapiExchange, *acceptor(settings, reveal))


def missing_key(
    settings: KerberosSettings, reveal: Callable[[Secret], str], host: str
) -> str | None:
    """The principal that clients of `host` ask tickets for, if the keytab has no key of it.

    Raises:
        MechanismUnusable: as `kerberos`.
    """
    try:
        from broker.security.kerberos.exchange import missing_key as found_missing
    except ImportError as error:
        raise _not_installed("GSSAPI", "kerberos", error) from error
    return found_missing(settings, reveal, host)


def _not_installed(mechanism: str, extra: str, error: ImportError) -> MechanismUnusable:
    return MechanismUnusable(
        f"{mechanism} needs a package that is not here ({error}); pip install 'tidelog[{extra}]'"
    )
