"""The settings of listeners' security: TLS, SASL, access control; and what they mean together.

Most of them may be given for one listener, `listener.name.<name>.<key>`, and some for one mechanism
on it, `listener.name.<name>.<mechanism>.<key>`; the most specific one counts. `listener_security`
resolves all of them to one value per listener.

Names, types and defaults are Apache Kafka's 4.3, with these differences, which are stricter: TLS
1.0 and 1.1 are refused, a typing error in `ssl.client.auth` is refused, and settings that name a
Java class are refused unless they name the built-in one.

Source: Kafka `SslConfigs`, `BrokerSecurityConfigs`, `ListenerName`; KIP-103, KIP-226, KIP-651.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from config.listeners import METRICS
from config.model import BrokerConfig, Listener
from config.rows import flag, number, secret, word, words
from config.security.cipher_suites import SUITES_OF_TLS_1_2, SUITES_OF_TLS_1_3
from config.value_providers import PROVIDERS_KEY
from config.values import INT32_MAX, Key, Secret, Value
from values.dataclasses import dataclass

CLIENT_AUTH: Final = "ssl.client.auth"
CONNECTIONS: Final = "max.connections"
CONNECTION_RATE: Final = "max.connection.creation.rate"
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "GSSAPI")
SIGNATURES: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures by a private key, which the broker verifies by the public one (RFC 7518, RFC 8037)."""

AUTHORIZERS: Final = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
METRICS_TOKEN: Final = "metrics.auth.token"
_PREFIX: Final = "listener.name."


def _windows(prefix: str, what: str) -> tuple[Key, ...]:
    return (
        number(f"{prefix}.num", 11, f"Quotas of {what} are measured over this many windows."),
        number(f"{prefix}.size.seconds", 1, f"The length of a window of {what}."),
    )


_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_OAUTH_CLASSES: Final = "org.apache.kafka.common.security.oauthbearer"
JWKS: Final = "sasl.oauthbearer.jwks.endpoint"


def _no_principal(value: Value) -> str | None:
    for principal in map(str.strip, str(value or "").split(";")):
        kind, _, name = principal.partition(":")
        if principal and not (kind and name):
            return "not all of it is TYPE:NAME"
    return None


def _jwks_address(value: Value) -> str | None:
    if not value or str(value).startswith(("https://", "file:///")):
        return None
    return "no such address"


_STORE_KEYS: Final = (
    word(
        "ssl.keystore.type",
        "PEM",
        "The form of the key and certificate of a TLS listener. PKCS12 needs tidelog[keystores].",
        choices=_STORE_TYPES,
        dynamic=True,
    ),
    word(
        "ssl.keystore.location",
        "",
        "A file with the private key and the certificate chain; in PEM in any order.",
        dynamic=True,
    ),
    secret("ssl.keystore.password", "The password of a key store in PKCS12 or JKS.", dynamic=True),
    secret("ssl.key.password", "Decrypts the private key.", dynamic=True),
    secret("ssl.keystore.key", "The private key itself, as PEM.", dynamic=True),
    secret("ssl.keystore.certificate.chain", "The certificate chain itself, as PEM.", dynamic=True),
    word(
        "ssl.truststore.type",
        "PEM",
        "The form of the certificates that clients are verified with.",
        choices=_STORE_TYPES,
        dynamic=True,
    ),
    word(
        "ssl.truststore.location",
        "",
        "A file with the certificate authorities that may sign clients' certificates.",
        dynamic=True,
    ),
    secret(
        "ssl.truststore.password",
        "The password of a trust store in PKCS12 or JKS; one in JKS is not verified without it.",
        dynamic=True,
    ),
    secret("ssl.truststore.certificates", "These authorities themselves, as PEM.", dynamic=True),
)
STORE_KEYS: Final = frozenset(key.name for key in _STORE_KEYS)
"""Settings that may change while the broker runs, for one listener at a time (KIP-226)."""

LISTENER_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        key.name: key
        for key in (
            *_STORE_KEYS,
            word(
                CLIENT_AUTH,
                "none",
                "Whether clients need a certificate. On a SASL_SSL listener only the form with "
                "the listener's prefix counts, as in Kafka.",
                choices=("none", "requested", "required"),
            ),
            word(
                "ssl.principal.mapping.rules",
                "DEFAULT",
                "How the subject of a client's certificate becomes the name of a user: DEFAULT or "
                "RULE:pattern/replacement/[LU], separated by commas; the first match counts.",
            ),
            words(
                "ssl.enabled.protocols",
                ("TLSv1.2", "TLSv1.3"),
                "The TLS versions that are served.",
                choices=("TLSv1.2", "TLSv1.3"),
            ),
            word(
                "ssl.protocol",
                "TLSv1.3",
                "The newest TLS version that is served; TLS stands for any.",
                choices=("TLSv1.2", "TLSv1.3", "TLS"),
            ),
            words(
                "ssl.cipher.suites",
                (),
                "The cipher suites that are served, the preferred ones first; by default those "
                "with AES-GCM and ChaCha20. A TLS version without a suite in this list is not "
                "served. Name all suites of TLS 1.3 or none: Python cannot choose among them.",
                choices=(*SUITES_OF_TLS_1_3, *SUITES_OF_TLS_1_2),
            ),
            flag(
                "ssl.allow.dn.changes",
                False,
                "Whether a key store that is set at run time may have a certificate with another "
                "subject than the one in force.",
            ),
            flag(
                "ssl.allow.san.changes",
                False,
                "Whether a key store that is set at run time may have a certificate without a "
                "host name or address of the one in force.",
            ),
            word(
                "ssl.crl.location",
                "",
                "Tidelog's own. A PEM file with revocation lists of the authorities that sign "
                "clients' certificates. A client is refused if its certificate is in the list, or "
                "if its authority has no list there that is in force.",
            ),
            words(
                "sasl.enabled.mechanisms",
                ("SCRAM-SHA-512", "SCRAM-SHA-256"),
                "The SASL mechanisms on offer. PLAIN checks passwords against the SCRAM "
                "credentials.",
                choices=MECHANISMS,
            ),
            number(
                CONNECTIONS,
                10_000,
                "Connections open at once; further ones are closed at once. With a listener's "
                "prefix its own limit, besides that of the whole broker.",
                dynamic=True,
            ),
            number(
                CONNECTION_RATE,
                INT32_MAX,
                "Connections accepted per second; a listener that is over the rate waits. "
                "With a listener's prefix its own, besides that of the whole broker.",
                dynamic=True,
            ),
            number(
                "connections.max.reauth.ms",
                0,
                "Clients have to authenticate again after this time; 0 for never.",
                low=0,
                wide=True,
            ),
            word(
                f"{JWKS}.url",
                "",
                "Where the keys are that sign the tokens of OAUTHBEARER: https://HOST/PATH or "
                "file:///PATH of a JSON Web Key Set.",
                check=_jwks_address,
                form="https://HOST/PATH or file:///PATH",
            ),
            number(
                f"{JWKS}.refresh.ms",
                3_600_000,
                "The keys are read again after this time, and when a token names another key.",
                low=1000,
                wide=True,
            ),
            number(
                f"{JWKS}.retry.backoff.ms",
                100,
                "How long the second attempt to read the keys waits; it doubles with each more.",
                wide=True,
            ),
            number(
                f"{JWKS}.retry.backoff.max.ms",
                10_000,
                "The longest wait between attempts to read the keys, and the shortest between two "
                "readings because of unknown keys.",
                wide=True,
            ),
            word("sasl.oauthbearer.expected.issuer", "", "The issuer that tokens need (`iss`)."),
            words(
                "sasl.oauthbearer.expected.audience",
                (),
                "Tokens need one of these audiences (`aud`).",
            ),
            number(
                "sasl.oauthbearer.clock.skew.seconds",
                30,
                "How far the clocks of the broker and the identity provider may differ.",
                low=0,
                high=600,
            ),
            word(
                "sasl.oauthbearer.sub.claim.name",
                "sub",
                "The claim of a token that has the name of the user.",
            ),
            word(
                "sasl.oauthbearer.scope.claim.name",
                "scope",
                "The claim of a token that has its scopes. Their form is checked; rights come from "
                "rules.",
            ),
            words(
                "sasl.oauthbearer.allowed.algorithms",
                ("RS256", "PS256", "ES256", "EdDSA"),
                "Tidelog's own. The signatures that tokens may have.",
                choices=SIGNATURES,
            ),
            word(
                "sasl.oauthbearer.jwt.validator.class",
                f"{_OAUTH_CLASSES}.DefaultJwtValidator",
                "Kafka's name for the check of tokens, which is the only one here; no class is "
                "loaded.",
                choices=(
                    f"{_OAUTH_CLASSES}.DefaultJwtValidator",
                    f"{_OAUTH_CLASSES}.BrokerJwtValidator",
                ),
            ),
            flag(
                "sasl.oauthbearer.unsecured",
                False,
                "Tidelog's own. Tokens need no signature, so anyone may be any user. For tests, "
                "and on loopback only.",
            ),
            word(
                "sasl.kerberos.service.name",
                "",
                "The first part of the broker's Kerberos principal, as in kafka/HOST@REALM.",
            ),
            words(
                "sasl.kerberos.principal.to.local.rules",
                ("DEFAULT",),
                "How a Kerberos principal becomes the name of a user: DEFAULT, which takes the "
                "first part of principals of the broker's realm, or Kafka's RULE:[n:format] with a "
                "pattern and a substitution; the first match counts.",
            ),
        )
    }
)
"""Settings that may also be given for one listener."""

MECHANISM_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        "connections.max.reauth.ms": LISTENER_KEYS["connections.max.reauth.ms"],
        "sasl.jaas.config": secret(
            "sasl.jaas.config",
            "For GSSAPI: Krb5LoginModule with keyTab and principal. For OAUTHBEARER it says "
            "nothing that counts here.",
        ),
        "sasl.server.callback.handler.class": word(
            "sasl.server.callback.handler.class",
            "",
            "Kafka's name for checking tokens by a JWKS, which is the only way here; no class is "
            "loaded.",
            choices=(
                f"{_OAUTH_CLASSES}.OAuthBearerValidatorCallbackHandler",
                f"{_OAUTH_CLASSES}.secured.OAuthBearerValidatorCallbackHandler",
            ),
        ),
    }
)
"""Settings that may be given for one mechanism of a listener, the last two only so."""

SECURITY_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        **LISTENER_KEYS,
        **{
            key.name: key
            for key in (
                number(
                    "sasl.server.max.receive.size",
                    65_536,
                    "The largest request of a client that has not authenticated; bytes.",
                    low=1024,
                    high=1_048_576,
                ),
                number(
                    "connection.failed.authentication.delay.ms",
                    100,
                    "How long the answer to a failed authentication waits.",
                    low=0,
                    high=30_000,
                ),
                word(
                    "authorizer.class.name",
                    "",
                    "Turns access control on. Kafka's class names stand for the authorizer of "
                    "this program; no class is loaded.",
                    choices=AUTHORIZERS,
                ),
                word(
                    "super.users",
                    "",
                    "Principals that may do everything, separated by semicolons: "
                    "User:admin;User:CN=ops,O=Example.",
                    check=_no_principal,
                    form="principals, for example User:admin;User:other",
                ),
                flag(
                    "allow.everyone.if.no.acl.found",
                    False,
                    "Whether everyone may use a resource for which there is no rule at all.",
                ),
                *_windows("quota.window", "bytes, request time and connections"),
                *_windows("controller.quota.window", "partitions created and deleted"),
                secret(
                    "delegation.token.secret.key",
                    "Turns delegation tokens on: their secrets are derived from this one. With "
                    "another one, all tokens that were made before are worthless.",
                    aliases=("delegation.token.master.key",),
                ),
                number(
                    "delegation.token.max.lifetime.ms",
                    7 * 24 * 3_600_000,
                    "A token cannot be renewed for longer than this after it was made.",
                    wide=True,
                ),
                number(
                    "delegation.token.expiry.time.ms",
                    24 * 3_600_000,
                    "A token expires after this time unless it is renewed.",
                    wide=True,
                ),
                number(
                    "delegation.token.expiry.check.interval.ms",
                    3_600_000,
                    "How often expired tokens are removed. They admit no login in the meantime.",
                    wide=True,
                ),
                word(
                    "audit.log.file",
                    "",
                    "Tidelog's own. A file to which the audit log is appended as JSON lines. "
                    "SIGHUP opens it again after it was moved.",
                ),
                PROVIDERS_KEY,
                flag(
                    "insecure.allow",
                    False,
                    "Tidelog's own. Lets a listener without TLS and SASL be reached from other "
                    "machines.",
                ),
            )
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS settings of one listener. Empty texts and None mean unset."""

    keystore_type: str
    keystore_location: str
    keystore_password: Secret | None
    key_password: Secret | None
    keystore_key: Secret | None
    certificate_chain: Secret | None
    truststore_type: str
    truststore_location: str
    truststore_password: Secret | None
    truststore_certificates: Secret | None
    client_auth: str
    principal_mapping_rules: str
    enabled_protocols: tuple[str, ...]
    protocol: str = "TLSv1.3"
    cipher_suites: tuple[str, ...] = ()
    crl_location: str = ""
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    @property
    def versions(self) -> tuple[str, ...]:
        """The TLS versions that are served: those of the settings that have a suite."""
        suites = set(self.cipher_suites)
        wanted = set(self.enabled_protocols)
        if self.protocol == "TLSv1.2":
            wanted.discard("TLSv1.3")
        if suites and suites.isdisjoint(SUITES_OF_TLS_1_2):
            wanted.discard("TLSv1.2")
        if suites and suites.isdisjoint(SUITES_OF_TLS_1_3):
            wanted.discard("TLSv1.3")
        return tuple(sorted(wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """Which tokens one listener accepts. Empty texts mean unset."""

    jwks_url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    issuer: str
    audience: tuple[str, ...]
    skew_seconds: int
    sub_claim: str
    scope_claim: str
    algorithms: tuple[str, ...]
    unsecured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosSettings:
    """Who the broker is on one listener, and how its clients are named."""

    service_name: str
    local_rules: tuple[str, ...]
    jaas: Secret | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How one listener protects itself.

    Attributes:
        protocol: one of `config.listeners.PROTOCOLS`.
        tls: None on listeners without TLS.
        mechanisms: the SASL mechanisms; empty on listeners without SASL.
        max_reauth_ms: the lifetime of a session for each mechanism; 0 is for ever.
        oauth: None on listeners without OAUTHBEARER.
        kerberos: None on listeners without GSSAPI.
    """

    protocol: str
    tls: TlsSettings | None
    mechanisms: tuple[str, ...]
    max_reauth_ms: Mapping[str, int]
    oauth: OAuthSettings | None = None
    kerberos: KerberosSettings | None = None


def scoped_name(listener: str, name: str) -> str:
    """The name under which the setting `name` is given for one listener."""
    return f"{_PREFIX}{listener.lower()}.{name}"


def scoped_key(name: str) -> Key | None:
    """The key that `listener.name.X.key` or `listener.name.X.mechanism.key` gives a value to."""
    if not name.startswith(_PREFIX):
        return None
    rest = name.removeprefix(_PREFIX).partition(".")[2]
    if rest in LISTENER_KEYS:
        return LISTENER_KEYS[rest]
    mechanism, _, key_name = rest.partition(".")
    return MECHANISM_KEYS.get(key_name) if mechanism.upper() in MECHANISMS else None


def listener_of(name: str) -> str:
    """The listener, in lower case, that `listener.name.X.key` is for."""
    return name.removeprefix(_PREFIX).partition(".")[0].lower()


def of_one_listener(config: BrokerConfig, name: str) -> Key | None:
    """The key that `name` sets for a listener of `config`; the name is in lower case."""
    listeners = [one.name for one in config.listeners]
    if config.metrics_listener is not None:
        listeners.append(METRICS)
    if any(name.startswith(scoped_name(listener, "")) for listener in listeners):
        return scoped_key(name)
    return None


def is_store_key(name: str) -> bool:
    """Whether `name` sets a key or trust store, of one listener or of all."""
    key = scoped_key(name) or LISTENER_KEYS.get(name)
    return key is not None and key.name in STORE_KEYS


def stores_set_at_run_time(config: BrokerConfig, listener: Listener) -> tuple[str, ...]:
    """The settings of the listener's stores that a request has set, in order of their names."""
    own = scoped_name(listener.name, "")
    found = config.dynamic.keys() | config.dynamic_secrets.keys()
    return tuple(sorted(name for name in found if name.startswith(own) and is_store_key(name)))


def listener_security(config: BrokerConfig, listener: Listener) -> ListenerSecurity:
    """The security of `listener`: its own settings, else the general ones, else defaults."""
    of = _SettingsOf(config, listener)
    protocol = listener.protocol
    mechanisms = of.words("sasl.enabled.mechanisms") if of.is_sasl else ()
    return ListenerSecurity(
        protocol=protocol,
        tls=_tls_settings(of) if protocol.endswith("SSL") else None,
        mechanisms=mechanisms,
        max_reauth_ms={name: of.whole("connections.max.reauth.ms", name) for name in mechanisms},
        oauth=_oauth_settings(of) if "OAUTHBEARER" in mechanisms else None,
        kerberos=KerberosSettings(
            service_name=of.text("sasl.kerberos.service.name"),
            local_rules=of.words("sasl.kerberos.principal.to.local.rules"),
            jaas=config.secrets.get(f"{_PREFIX}{listener.name.lower()}.gssapi.sasl.jaas.config"),
        )
        if "GSSAPI" in mechanisms
        else None,
    )


class _SettingsOf:
    """The settings that count for one listener, by their general names."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        self._config = config
        self._listener = listener.name
        self.is_sasl = listener.protocol.startswith("SASL_")

    def value(self, name: str, mechanism: str = "") -> Value:
        of_mechanism = scoped_name(self._listener, f"{mechanism.lower()}.{name}")
        for full in (of_mechanism, scoped_name(self._listener, name), name):
            text = self._config.text_of(full)
            is_too_general = full == name and name in _PREFIXED_ONLY and self.is_sasl
            if text is not None and not is_too_general:
                return LISTENER_KEYS[name].parse(text)
        return LISTENER_KEYS[name].default

    def text(self, name: str) -> str:
        return str(self.value(name))

    def words(self, name: str) -> tuple[str, ...]:
        found = self.value(name)
        assert isinstance(found, tuple)
        return found

    def whole(self, name: str, mechanism: str = "") -> int:
        return int(str(self.value(name, mechanism)))

    def secret(self, name: str) -> Secret | None:
        scoped, config = scoped_name(self._listener, name), self._config
        if scoped in config.dynamic_secrets:
            found = config.dynamic_secrets[scoped]
            return None if found.is_empty else found  # so it takes a given one out of force
        return config.secrets.get(scoped) or config.secrets.get(name)


def _tls_settings(of: _SettingsOf) -> TlsSettings:
    return TlsSettings(
        keystore_type=of.text("ssl.keystore.type"),
        keystore_location=of.text("ssl.keystore.location"),
        keystore_password=of.secret("ssl.keystore.password"),
        key_password=of.secret("ssl.key.password"),
        keystore_key=of.secret("ssl.keystore.key"),
        certificate_chain=of.secret("ssl.keystore.certificate.chain"),
        truststore_type=of.text("ssl.truststore.type"),
        truststore_location=of.text("ssl.truststore.location"),
        truststore_password=of.secret("ssl.truststore.password"),
        truststore_certificates=of.secret("ssl.truststore.certificates"),
        client_auth=of.text(CLIENT_AUTH),
        principal_mapping_rules=of.text("ssl.principal.mapping.rules"),
        enabled_protocols=of.words("ssl.enabled.protocols"),
        protocol=of.text("ssl.protocol"),
        cipher_suites=of.words("ssl.cipher.suites"),
        crl_location=of.text("ssl.crl.location"),
        allow_dn_changes=of.value("ssl.allow.dn.changes") is True,
        allow_san_changes=of.value("ssl.allow.san.changes") is True,
    )


def _oauth_settings(of: _SettingsOf) -> OAuthSettings:
    return OAuthSettings(
        jwks_url=of.text(f"{JWKS}.url"),
        refresh_ms=of.whole(f"{JWKS}.refresh.ms"),
        backoff_ms=of.whole(f"{JWKS}.retry.backoff.ms"),
        backoff_max_ms=of.whole(f"{JWKS}.retry.backoff.max.ms"),
        issuer=of.text("sasl.oauthbearer.expected.issuer"),
        audience=of.words("sasl.oauthbearer.expected.audience"),
        skew_seconds=of.whole("sasl.oauthbearer.clock.skew.seconds"),
        sub_claim=of.text("sasl.oauthbearer.sub.claim.name"),
        scope_claim=of.text("sasl.oauthbearer.scope.claim.name"),
        algorithms=of.words("sasl.oauthbearer.allowed.algorithms"),
        unsecured=of.value("sasl.oauthbearer.unsecured") is True,
    )


_PREFIXED_ONLY: Final = frozenset({CLIENT_AUTH})
"""On SASL listeners these count with the listener's prefix only (Kafka `ChannelBuilders`)."""
