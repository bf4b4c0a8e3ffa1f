"""The server's side of GSSAPI with Kerberos tickets.

    client                                        server
    AP-REQ (the ticket)                       ->
                                              <-  AP-REP (the broker proves itself)
    (empty)                                   ->
                                              <-  the layers on offer, signed: none
    the layer chosen, signed                  ->
                                              <-  (empty: authenticated)

No security layer is offered, as in Kafka: use SASL_SSL to hide the data. The authorization id that
clients may send with the layer has no effect, as in Kafka: some send the name of the service.

Source: RFC 4752, RFC 4120; Kafka `SaslServerAuthenticator`, `SaslServerCallbackHandler`.
"""

import contextlib
import enum
from collections.abc import Callable
from typing import Any, Final

import gssapi
from gssapi.exceptions import GSSError

from broker.principal import user
from broker.security.jaas import parse_jaas
from broker.security.kerberos.names import LocalNames, NoRuleMatches
from broker.security.mechanism import AuthenticationFailed, MechanismUnusable, Step
from broker.security.tls.principal_mapping import RuleRefused
from config.security.keys import KerberosSettings
from config.values import InvalidValue, Secret

NO_LAYER: Final = b"\x01\x00\x00\x00"
"""The layers on offer (one bit: none), and the largest message with a layer (RFC 4752)."""

_MODULE: Final = "Krb5LoginModule"


class _Stage(enum.Enum):
    CONTEXT = enum.auto()
    EMPTY = enum.auto()
    LAYER = enum.auto()


class GssapiExchange:
    """One GSSAPI authentication on the server's side."""

    is_slow = True

    def __init__(self, credentials: Any, names: LocalNames) -> None:
        self.claimed_name = ""
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self._names = names
        self._stage = _Stage.CONTEXT

    def step(self, token: bytes) -> Step:
        """Take the client's next message.

        Raises:
            AuthenticationFailed: the ticket is not good, a message is malformed, or no rule names
                the principal.
        """
        try:
            match self._stage:
                case _Stage.CONTEXT:
                    return self._accept(token)
                case _Stage.EMPTY:
                    return self._offer(token)
                case _Stage.LAYER:
                    return self._finish(token)
        except GSSError as error:
            raise AuthenticationFailed(f"ticket refused ({error})") from None
        except NoRuleMatches as error:
            raise AuthenticationFailed(str(error)) from None

    def _accept(self, token: bytes) -> Step:
        answer = self._context.step(token)
        if not self._context.complete:
            return Step(token=answer or b"")
        if not answer:
            return self._offer(b"")
        self._stage = _Stage.EMPTY
        return Step(token=answer)

    def _offer(self, token: bytes) -> Step:
        if token:
            raise AuthenticationFailed("malformed")
        self._stage = _Stage.LAYER
        return Step(token=self._context.wrap(NO_LAYER, False).message)

    def _finish(self, token: bytes) -> Step:
        choice = self._context.unwrap(token).message
        if len(choice) < len(NO_LAYER) or choice[0] != NO_LAYER[0]:
            raise AuthenticationFailed("security-layer")
        self.claimed_name = self._names.name_of(str(self._context.initiator_name))
        return Step(principal=user(self.claimed_name))


def acceptor(settings: KerberosSettings, reveal: Callable[[Secret], str]) -> tuple[Any, LocalNames]:
    """The broker's own credentials and the rules for its clients' names.

    Raises:
        MechanismUnusable: the settings are wrong, or there is no key for the broker.
    """
    options = _login_options(settings, reveal)
    service = settings.service_name or options.get("serviceName", "")
    if not service:
        raise MechanismUnusable("GSSAPI needs sasl.kerberos.service.name; set it, usually to kafka")
    name = gssapi.Name(service, gssapi.NameType.hostbased_service)
    if "principal" in options:
        name = gssapi.Name(options["principal"], gssapi.NameType.kerberos_principal)
    keytab = _keytab(options)
    try:
        credentials = _credentials(name, keytab)
        anyone = gssapi.Name("x", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
        names = LocalNames(settings.local_rules, str(anyone).partition("@")[2])
    except GSSError as error:
        raise MechanismUnusable(
            f"GSSAPI has no key for {options.get('principal', service)} in "
            f"{keytab or 'the default keytab'}: {error}; put the broker's key into a keytab and "
            "name it in the listener's gssapi.sasl.jaas.config, or in KRB5_KTNAME"
        ) from error
    except RuleRefused as error:
        raise MechanismUnusable(str(error)) from error
    return credentials, names


def missing_key(
    settings: KerberosSettings, reveal: Callable[[Secret], str], host: str
) -> str | None:
    """The principal that clients of `host` ask tickets for, if the keytab has no key of it.

    Raises:
        MechanismUnusable: as `acceptor`.
    """
    acceptor(settings, reveal)
    options = _login_options(settings, reveal)
    service = settings.service_name or options.get("serviceName", "")
    principal = f"{service}/{host.lower()}"
    if "principal" in options:
        own, _, own_host = options["principal"].partition("@")[0].partition("/")
        return None if f"{own}/{own_host.lower()}" == principal else principal
    # The first one as the library of the clients would write it, maybe with a name from DNS.
    for name in (
        gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
        gssapi.Name(principal, gssapi.NameType.kerberos_principal),
    ):
        with contextlib.suppress(GSSError):
            _credentials(name, _keytab(options))
            return None
    return principal


def _keytab(options: dict[str, str]) -> str:
    return options.get("keyTab", "").removeprefix("file:")


def _credentials(name: gssapi.Name, keytab: str) -> Any:
    """The broker's own credentials; an empty `keytab` is the default one."""
    return gssapi.Credentials(
        name=name,
        usage="accept",
        mechs=[gssapi.MechType.kerberos],
        store={"keytab": keytab} if keytab else None,
    )


def _login_options(settings: KerberosSettings, reveal: Callable[[Secret], str]) -> dict[str, str]:
    """The options of the JAAS line, empty without one."""
    if settings.jaas is None:
        return {}
    try:
        module, options = parse_jaas(reveal(settings.jaas)) or ("", {})
    except (OSError, InvalidValue) as error:
        raise MechanismUnusable(f"gssapi.sasl.jaas.config cannot be read: {error}") from error
    if not module.endswith(_MODULE):
        raise MechanismUnusable(
            f"gssapi.sasl.jaas.config is no line of {_MODULE}; write "
            f'com.sun.security.auth.module.{_MODULE} required keyTab="FILE" '
            'principal="kafka/HOST@REALM";'
        )
    return options
