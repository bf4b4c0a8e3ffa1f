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
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from config.errors import Problem
from config.listeners import METRICS
from config.model import BrokerConfig, Listener
from config.rows import flag, number
from config.values import Key, Secret, Value, ValueType

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
AUTHORIZERS: Final = (
    "",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
METRICS_TOKEN: Final = "metrics.auth.token"
_PREFIX: Final = "listener.name."


def _word(name: str, default: str, doc: str, *choices: str) -> Key:
    return Key(name=name, type=ValueType.STRING, default=default, doc=doc, choices=choices)


def _words(name: str, default: tuple[str, ...], doc: str, *choices: str) -> Key:
    return Key(name=name, type=ValueType.LIST, default=default, doc=doc, choices=choices)


def _secret(name: str, doc: str) -> Key:
    return Key(name=name, type=ValueType.PASSWORD, default="", doc=doc)


def _windows(prefix: str, what: str) -> tuple[Key, ...]:
    return (
        number(
            f"{prefix}.num", 11, f"Quotas of {what} are measured over this many windows.", low=1
        ),
        number(f"{prefix}.size.seconds", 1, f"The length of a window of {what}.", low=1),
    )


_PEM_ONLY: Final = "Only PEM is served; `openssl pkcs12` converts other stores."

LISTENER_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        key.name: key
        for key in (
            _word(
                "ssl.keystore.type",
                "PEM",
                f"The form of the key and certificate of a TLS listener. {_PEM_ONLY}",
                "PEM",
            ),
            _word(
                "ssl.keystore.location",
                "",
                "A PEM file with the private key and the certificate chain, in any order.",
            ),
            _secret("ssl.key.password", "Decrypts the private key."),
            _secret("ssl.keystore.key", "The private key itself, as PEM."),
            _secret("ssl.keystore.certificate.chain", "The certificate chain itself, as PEM."),
            _word(
                "ssl.truststore.type",
                "PEM",
                f"The form of the certificates that clients are verified with. {_PEM_ONLY}",
                "PEM",
            ),
            _word(
                "ssl.truststore.location",
                "",
                "A PEM file with the certificate authorities that may sign clients' certificates.",
            ),
            _secret("ssl.truststore.certificates", "These authorities themselves, as PEM."),
            _word(
                "ssl.client.auth",
                "none",
                "Whether clients need a certificate. On a SASL_SSL listener only the form with "
                "the listener's prefix counts, as in Kafka.",
                "none",
                "requested",
                "required",
            ),
            _word(
                "ssl.principal.mapping.rules",
                "DEFAULT",
                "How the subject of a client's certificate becomes the name of a user: DEFAULT or "
                "RULE:pattern/replacement/[LU], separated by commas; the first match counts.",
            ),
            _words(
                "ssl.enabled.protocols",
                ("TLSv1.2", "TLSv1.3"),
                "The TLS versions that are served.",
                "TLSv1.2",
                "TLSv1.3",
            ),
            _words(
                "sasl.enabled.mechanisms",
                ("SCRAM-SHA-512", "SCRAM-SHA-256"),
                "The SASL mechanisms on offer. PLAIN checks passwords against the SCRAM "
                "credentials.",
                *MECHANISMS,
            ),
            number(
                "connections.max.reauth.ms",
                0,
                "Clients have to authenticate again after this time; 0 for never.",
                low=0,
                wide=True,
            ),
        )
    }
)
"""Settings that may also be given for one listener."""

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
                _word(
                    "authorizer.class.name",
                    "",
                    "Turns access control on. Kafka's class names stand for the authorizer of "
                    "this program; no class is loaded.",
                    *AUTHORIZERS,
                ),
                _word(
                    "super.users",
                    "",
                    "Principals that may do everything, separated by semicolons: "
                    "User:admin;User:CN=ops,O=Example.",
                ),
                flag(
                    "allow.everyone.if.no.acl.found",
                    False,
                    "Whether everyone may use a resource for which there is no rule at all.",
                ),
                *_windows("quota.window", "bytes, request time and connections"),
                *_windows("controller.quota.window", "partitions created and deleted"),
                flag(
                    "insecure.allow",
                    False,
                    "Ours: lets a listener without TLS and SASL be reached from other machines.",
                ),
            )
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS settings of one listener. Empty texts and None mean unset."""

    keystore_location: str
    key_password: Secret | None
    keystore_key: Secret | None
    certificate_chain: Secret | None
    truststore_location: str
    truststore_certificates: Secret | None
    client_auth: str
    principal_mapping_rules: str
    enabled_protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How one listener protects itself.

    Attributes:
        protocol: one of `config.listeners.PROTOCOLS`.
        tls: None on listeners without TLS.
        mechanisms: the SASL mechanisms; empty on listeners without SASL.
        max_reauth_ms: the lifetime of a session for each mechanism; 0 is for ever.
    """

    protocol: str
    tls: TlsSettings | None
    mechanisms: tuple[str, ...]
    max_reauth_ms: Mapping[str, int]


def scoped_key(name: str) -> Key | None:
    """The key that `listener.name.X.key` or `listener.name.X.mechanism.key` gives a value to."""
    if not name.startswith(_PREFIX):
        return None
    rest = name.removeprefix(_PREFIX).partition(".")[2]
    if rest in LISTENER_KEYS:
        return LISTENER_KEYS[rest]
    mechanism, _, key_name = rest.partition(".")
    if mechanism.upper() in MECHANISMS and key_name == "connections.max.reauth.ms":
        return LISTENER_KEYS[key_name]
    return None


def listener_security(config: BrokerConfig, listener: Listener) -> ListenerSecurity:
    """The security of `listener`: its own settings, else the general ones, else defaults."""

    def value(name: str, mechanism: str = "") -> Value:
        scope = f"{_PREFIX}{listener.name.lower()}."
        for full in (f"{scope}{mechanism.lower()}.{name}", f"{scope}{name}", name):
            setting = config.settings.get(full)
            if setting is not None and not (full == name and name in _PREFIXED_ONLY and is_sasl):
                return LISTENER_KEYS[name].parse(setting.text)
        return LISTENER_KEYS[name].default

    def secret(name: str) -> Secret | None:
        scoped = f"{_PREFIX}{listener.name.lower()}.{name}"
        return config.secrets.get(scoped) or config.secrets.get(name)

    protocol = listener.protocol
    is_sasl = protocol.startswith("SASL_")
    mechanisms = value("sasl.enabled.mechanisms") if is_sasl else ()
    assert isinstance(mechanisms, tuple)
    tls = None
    if protocol.endswith("SSL"):
        protocols = value("ssl.enabled.protocols")
        assert isinstance(protocols, tuple)
        tls = TlsSettings(
            keystore_location=str(value("ssl.keystore.location")),
            key_password=secret("ssl.key.password"),
            keystore_key=secret("ssl.keystore.key"),
            certificate_chain=secret("ssl.keystore.certificate.chain"),
            truststore_location=str(value("ssl.truststore.location")),
            truststore_certificates=secret("ssl.truststore.certificates"),
            client_auth=str(value("ssl.client.auth")),
            principal_mapping_rules=str(value("ssl.principal.mapping.rules")),
            enabled_protocols=protocols,
        )
    return ListenerSecurity(
        protocol=protocol,
        tls=tls,
        mechanisms=mechanisms,
        max_reauth_ms={
            name: int(str(value("connections.max.reauth.ms", name))) for name in mechanisms
        },
    )


_PREFIXED_ONLY: Final = frozenset({"ssl.client.auth"})
"""On SASL listeners these count with the listener's prefix only (Kafka `ChannelBuilders`)."""


def security_problems(config: BrokerConfig) -> list[Problem]:
    """What does not fit together, each with its cure."""
    problems = []
    for listener in config.listeners:
        security = listener_security(config, listener)
        for reason, cure in _complaints(security, listener, config):
            problems.append(
                Problem(key="listeners", value=str(listener), origin="", reason=reason, cure=cure)
            )
    return problems


def _complaints(
    security: ListenerSecurity, listener: Listener, config: BrokerConfig
) -> list[tuple[str, str]]:
    found = []
    tls = security.tls
    if tls is not None:
        has_file, has_text = bool(tls.keystore_location), tls.keystore_key is not None
        if has_file and has_text:
            found.append(
                ("a key is given as a file and inline", "remove ssl.keystore.location or .key")
            )
        if not has_file and not has_text:
            found.append(
                (
                    "a TLS listener has no certificate",
                    "set ssl.keystore.location to a PEM file with the key and the certificate",
                )
            )
        if has_text and tls.certificate_chain is None:
            found.append(("a key without its certificate", "set ssl.keystore.certificate.chain"))
        trusts = tls.truststore_location or tls.truststore_certificates
        if tls.client_auth != "none" and not trusts:
            found.append(
                (
                    "clients' certificates are asked for, but none would be trusted",
                    "set ssl.truststore.location to the authority that signs them",
                )
            )
    if security.protocol == "PLAINTEXT" and not listener.is_loopback and not config.insecure_allow:
        found.append(
            (
                "everyone who reaches this address could read and write everything",
                "use SSL or SASL_SSL (docs/security.md), listen on 127.0.0.1, or say "
                "--insecure (insecure.allow=true) where the network itself is trusted",
            )
        )
    if security.protocol.startswith("SASL_") and not security.mechanisms:
        found.append(("a SASL listener without mechanisms", "set sasl.enabled.mechanisms"))
    if (
        security.protocol == "SASL_PLAINTEXT"
        and "PLAIN" in security.mechanisms
        and not listener.is_loopback
        and not config.insecure_allow
    ):
        found.append(
            (
                "PLAIN would send passwords in clear over the network",
                "use SASL_SSL or SCRAM, or set insecure.allow=true",
            )
        )
    return found


def metrics_port_problems(config: BrokerConfig) -> list[Problem]:
    """What is wrong with the settings of the metrics port, each with its cure."""
    listener = config.metrics_listener
    if listener is None:
        return []
    found = [
        ("metrics.listener.security", "tls", reason, cure)
        for reason, cure in _complaints(listener_security(config, listener), listener, config)
        if listener.protocol == "SSL"
    ]
    auth = config.metrics_auth
    if auth == "bearer" and METRICS_TOKEN not in config.secrets:
        found.append(
            (
                "metrics.auth",
                auth,
                "no token is given",
                f"set {METRICS_TOKEN}=file:/PATH or env:NAME",
            )
        )
    if (
        auth != "none"
        and listener.protocol != "SSL"
        and not listener.is_loopback
        and not config.insecure_allow
    ):
        found.append(
            (
                "metrics.auth",
                auth,
                f"{listener.address} would take secrets in clear over the network",
                "set metrics.listener.security=tls, listen on 127.0.0.1, or say "
                "insecure.allow=true where the network itself is trusted",
            )
        )
    if any(other.name == METRICS for other in config.listeners):
        found.append(
            (
                "listeners",
                METRICS,
                "the settings listener.name.metrics.* are those of the metrics port",
                "give the listener another name",
            )
        )
    return [
        Problem(key=key, value=value, origin="", reason=reason, cure=cure)
        for key, value, reason, cure in found
    ]
