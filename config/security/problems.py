"""What is wrong with the settings of security, each with its cure: what a start refuses.

Read next: `config.security.keys`, docs/security.md.
"""

import re
from collections.abc import Iterator
from typing import Final

from config.errors import Problem
from config.listeners import METRICS
from config.model import BrokerConfig, Listener
from config.security.cipher_suites import SUITES_OF_TLS_1_3
from config.security.keys import (
    CLIENT_AUTH,
    JWKS,
    METRICS_TOKEN,
    ListenerSecurity,
    OAuthSettings,
    TlsSettings,
    listener_of,
    listener_security,
    scoped_key,
    scoped_name,
)

_CONTROLLER: Final = "controller"
"""The usual listener of Kafka's controllers, whose settings a file of Kafka may have."""


def security_problems(config: BrokerConfig) -> Iterator[Problem]:
    """What does not fit together, each with its cure."""
    for listener in config.listeners:
        security = listener_security(config, listener)
        for reason, cure in _complaints(security, listener, config):
            yield Problem("listeners", str(listener), reason, cure)
    yield from _settings_of_no_listener(config)
    if re.search(r",\s*User:", config.super_users):
        yield Problem(
            "super.users",
            config.super_users,
            "a comma is part of a name, as in those of certificates",
            "separate users by ;",
        )


def _settings_of_no_listener(config: BrokerConfig) -> Iterator[Problem]:
    """What is meant to protect a listener, which has another name."""
    names = [listener.name.lower() for listener in config.listeners]
    known = {*names, METRICS.lower(), _CONTROLLER}
    for name in config.settings:
        if scoped_key(name) is not None and listener_of(name) not in known:
            yield Problem(
                "listeners",
                ",".join(map(str, config.listeners)),
                f"{name} is for a listener that there is not, so it protects none",
                f"write listener.name.{' or '.join(names)}, or remove it",
            )


def security_notices(config: BrokerConfig) -> Iterator[str]:
    """What has no effect although it was set, for the operator."""
    if config.super_users and not config.authorizer_class_name:
        yield (
            f"super.users = {config.super_users} does nothing without authorizer.class.name: "
            "everyone may do everything"
        )
    for listener in config.listeners:
        tls = listener_security(config, listener).tls
        if tls is None or tls.client_auth != "none":
            continue
        of_all = config.text_of(CLIENT_AUTH)
        own = scoped_name(listener.name, CLIENT_AUTH)
        if of_all not in (None, "none") and config.text_of(own) is None:
            yield (
                f"{CLIENT_AUTH} = {of_all} does not count on listener {listener.name}, where users "
                f"log in, as in Kafka; set {own} to ask for certificates there"
            )
        elif tls.crl_location:
            yield (
                f"ssl.crl.location = {tls.crl_location} does nothing on listener {listener.name}: "
                f"it asks for no certificates ({own})"
            )


def _complaints(
    security: ListenerSecurity, listener: Listener, config: BrokerConfig
) -> Iterator[tuple[str, str]]:
    tls = security.tls
    if tls is not None:
        yield from _complaints_about_tls(tls)
    if security.protocol == "PLAINTEXT" and not listener.is_loopback and not config.insecure_allow:
        yield (
            "everyone who reaches this address could read and write everything",
            "use SASL_SSL (tidelog docs security), listen on 127.0.0.1, or say "
            "--insecure (insecure.allow=true) where the network itself is trusted",
        )
    if (
        security.protocol == "SSL"
        and tls is not None
        and tls.client_auth != "required"
        and listener.name != METRICS
        and not (config.authorizer_class_name or listener.is_loopback or config.insecure_allow)
    ):
        yield (
            "everyone who reaches this address could read and write everything",
            "use SASL_SSL, set ssl.client.auth=required or an authorizer (tidelog docs security), "
            "listen on 127.0.0.1, or say --insecure (insecure.allow=true)",
        )
    if security.protocol.startswith("SASL_") and not security.mechanisms:
        yield ("a SASL listener without mechanisms", "set sasl.enabled.mechanisms")
    if (
        security.protocol == "SASL_PLAINTEXT"
        and not listener.is_loopback
        and not config.insecure_allow
    ):
        for mechanism, secrets in (("PLAIN", "passwords"), ("OAUTHBEARER", "tokens")):
            if mechanism in security.mechanisms:
                yield (
                    f"{mechanism} would send {secrets} in clear over the network",
                    "use SASL_SSL or SCRAM, or set insecure.allow=true",
                )
    yield from _oauth_complaints(security.oauth, listener, config)


def _complaints_about_tls(tls: TlsSettings) -> Iterator[tuple[str, str]]:
    has_file, has_text = bool(tls.keystore_location), tls.keystore_key is not None
    if has_file and has_text:
        yield ("a key is given as a file and inline", "remove ssl.keystore.location or .key")
    if not has_file and not has_text:
        yield (
            "a TLS listener has no certificate",
            "set ssl.keystore.location to a file with the key and the certificate",
        )
    if has_text and tls.certificate_chain is None:
        yield ("a key without its certificate", "set ssl.keystore.certificate.chain")
    yield from _complaints_about_stores(tls)
    yield from _complaints_about_suites(tls)
    trusts = tls.truststore_location or tls.truststore_certificates
    if tls.client_auth != "none" and not trusts:
        yield (
            "clients' certificates are asked for, but none would be trusted",
            "set ssl.truststore.location to the authority that signs them",
        )


def _complaints_about_suites(tls: TlsSettings) -> Iterator[tuple[str, str]]:
    missing = [name for name in SUITES_OF_TLS_1_3 if name not in tls.cipher_suites]
    if 0 < len(missing) < len(SUITES_OF_TLS_1_3):
        yield (
            f"ssl.cipher.suites has suites of TLS 1.3, but not {', '.join(missing)}; they cannot "
            "be chosen one by one",
            "name all three, or none of them to serve TLS 1.2 only",
        )
    elif not tls.versions:
        yield (
            "no TLS version is left to serve: ssl.enabled.protocols = "
            f"{','.join(tls.enabled_protocols)}, ssl.protocol = {tls.protocol}, ssl.cipher.suites "
            f"= {','.join(tls.cipher_suites) or 'all'}",
            "name a version, and suites of that version",
        )


def _oauth_complaints(
    oauth: OAuthSettings | None, listener: Listener, config: BrokerConfig
) -> Iterator[tuple[str, str]]:
    if oauth is None or (oauth.unsecured and listener.is_loopback):
        return
    if oauth.unsecured:
        yield (
            "with sasl.oauthbearer.unsecured everyone who reaches this address may be any user",
            "listen on 127.0.0.1, or remove sasl.oauthbearer.unsecured",
        )
        return
    if not oauth.jwks_url:
        yield (
            "OAUTHBEARER has no keys to verify tokens with",
            f"set {JWKS}.url to the key set of the identity provider",
        )
    for name, expected in (("issuer", oauth.issuer), ("audience", oauth.audience)):
        if not expected and not (listener.is_loopback and config.insecure_allow):
            yield (
                f"tokens of any {name} would be accepted",
                f"set sasl.oauthbearer.expected.{name} to what the identity provider writes "
                "into tokens for this broker",
            )
    if not oauth.algorithms:
        yield (
            "no signature of a token would be accepted",
            "set sasl.oauthbearer.allowed.algorithms, or remove it",
        )


def _complaints_about_stores(tls: TlsSettings) -> Iterator[tuple[str, str]]:
    """What does not fit together in the types and passwords of stores."""
    for name, kind, location, password, text in (
        (
            "keystore",
            tls.keystore_type,
            tls.keystore_location,
            tls.keystore_password,
            tls.keystore_key,
        ),
        (
            "truststore",
            tls.truststore_type,
            tls.truststore_location,
            tls.truststore_password,
            tls.truststore_certificates,
        ),
    ):
        prefix = f"ssl.{name}"
        if kind == "PEM" and password is not None:
            cure = f"remove it; ssl.key.password decrypts a key in PEM, {prefix}.type names a store"
            yield (f"{prefix}.password is set, but a PEM file has no password", cure)
        if kind != "PEM" and text is not None:
            cure = f"set {prefix}.type=PEM, or {prefix}.location"
            yield (f"certificates are given inline, but {prefix}.type is {kind}", cure)
        if kind != "PEM" and name == "keystore" and location and password is None:
            cure = "write file:/PATH or env:NAME"
            yield (f"a key store of the type {kind} needs {prefix}.password", cure)


def metrics_port_problems(config: BrokerConfig) -> Iterator[Problem]:
    """What is wrong with the settings of the metrics port, each with its cure."""
    listener = config.metrics_listener
    if listener is None:
        return
    if listener.protocol == "SSL":
        security = listener_security(config, listener)
        for reason, cure in _complaints(security, listener, config):
            yield Problem("metrics.listener.security", "tls", reason, cure)
    auth = config.metrics_auth
    if auth == "bearer" and METRICS_TOKEN not in config.secrets:
        yield Problem(
            "metrics.auth",
            auth,
            "no token is given",
            f"set {METRICS_TOKEN}=file:/PATH or env:NAME",
        )
    if (
        auth != "none"
        and listener.protocol != "SSL"
        and not listener.is_loopback
        and not config.insecure_allow
    ):
        yield Problem(
            "metrics.auth",
            auth,
            f"{listener.address} would take secrets in clear over the network",
            "set metrics.listener.security=tls, listen on 127.0.0.1, or say "
            "insecure.allow=true where the network itself is trusted",
        )
    if any(other.name == METRICS for other in config.listeners):
        yield Problem(
            "listeners",
            METRICS,
            "the settings listener.name.metrics.* are those of the metrics port",
            "give the listener another name",
        )
