"""What the settings, files, users and rules of a broker leave open: the security of ``doctor``.

Reads the metadata journal as it lies there, so a broker may be running. Changes nothing.
Each check yields a `Finding` for every weakness, or one that all is good.

Source: docs/security.md.
"""

import os
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from broker.principal import ANONYMOUS, USER_TYPE, Principal, parse_principals
from broker.security.acls import ANY_USER, KIND_ACL, parse_acl
from broker.security.credentials import KIND_SCRAM, parse_credential
from broker.security.mechanism import MechanismUnusable
from broker.security.optional_mechanisms import missing_key, read_identity_keys
from broker.security.scram import SCRAM_BY_NAME, ScramCredential
from broker.security.secret_files import reveal
from broker.security.tls.contexts import (
    TlsUnusable,
    build_context,
    revocations_in_force_ms,
)
from cli.security.offline_users import PROPERTIES
from cli.security.unmatched import why_it_never_matches
from config import BrokerConfig, ConfigErrors, Listener, with_dynamic
from config.security.cipher_suites import is_weak
from config.security.keys import (
    ListenerSecurity,
    TlsSettings,
    listener_security,
    stores_set_at_run_time,
)
from protocol.acl import WILDCARD, Acl, Permission
from storage.directory.metadata import KIND_BROKER_OVERRIDES, ONLY_KEY
from storage.directory.metadata_journal import JOURNAL_FILE, read_documents
from values.dataclasses import dataclass
from values.words import format_count

ITERATIONS_GOOD = 8192
SALT_BYTES_GOOD = 8
EXPIRY_WARNING_DAYS = 30
NAMES_SHOWN = 5

_PASSWORDS = frozenset({*SCRAM_BY_NAME, "PLAIN"})
"""The mechanisms whose users have credentials in the metadata journal."""

_DAY_MS = 86_400_000
_ANY_HOST = ("", "0.0.0.0", "::")


class Verdict(StrEnum):
    """How bad it is."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check; `cure` is empty where nothing needs to be done."""

    check: str
    verdict: Verdict
    seen: str
    cure: str = ""


def good(check: str, seen: str) -> Finding:
    """Nothing needs to be done."""
    return Finding(check=check, verdict=Verdict.GOOD, seen=seen)


def warn(check: str, seen: str, cure: str = "") -> Finding:
    """A weakness, or what is slow."""
    return Finding(check=check, verdict=Verdict.WARN, seen=seen, cure=cure)


def bad(check: str, seen: str, cure: str) -> Finding:
    """What has to be cured."""
    return Finding(check=check, verdict=Verdict.BAD, seen=seen, cure=cure)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the checks look at."""

    config: BrokerConfig
    listeners: tuple[tuple[Listener, ListenerSecurity], ...]
    users: dict[str, list[ScramCredential]]
    acls: tuple[Acl, ...]
    super_users: tuple[Principal, ...]

    @property
    def has_authorizer(self) -> bool:
        return bool(self.config.authorizer_class_name)


def examine_security(config: BrokerConfig) -> Iterator[Finding]:
    """Every check of security, the outermost wall first."""
    try:
        place = _place(config)
    except ConfigErrors as error:
        for problem in error.problems:
            yield bad("settings made at run time", str(problem), "set others, or change the file")
        return
    except ValueError as error:
        yield bad("metadata journal", str(error), "restore metadata.journal from a copy")
        return
    has_oauth = any(one.oauth for _, one in place.listeners)
    has_kerberos = any(one.kerberos for _, one in place.listeners)
    checks: tuple[tuple[str, str, Callable[[_Place], Iterator[Finding]]], ...] = (
        ("listeners", "none lets strangers in from the network", _listeners),
        ("certificates", "none is missing, none expires soon", _certificates),
        ("identity provider", "its keys can be read", _identity_providers),
        ("Kerberos", "there is a key for each name that clients connect to", _kerberos),
        ("secret files", "their user alone may read them", _files),
        ("users", "no key is weak, no user is useless", _users),
        ("rules", "none is for everyone, none never matches", _rules),
        ("metrics port", "strangers learn nothing from it", _metrics_port),
    )
    for name, seen, check in checks:
        if (check is _kerberos and not has_kerberos) or (
            check is _identity_providers and not has_oauth
        ):
            continue
        yield from list(check(place)) or [good(name, seen)]


def in_force(config: BrokerConfig) -> BrokerConfig:
    """`config` with what was set at run time, as far as the metadata journal can be read.

    Raises:
        ConfigErrors: the two do not fit together.
    """
    found = read_documents(_journal(config), KIND_BROKER_OVERRIDES).get(ONLY_KEY)
    if not isinstance(found, dict):
        return config
    return with_dynamic(config, {name: str(text) for name, text in found.items()})


def _journal(config: BrokerConfig) -> bytes:
    try:
        return Path(config.data_dir, JOURNAL_FILE).read_bytes()
    except OSError:
        return b""


def _place(config: BrokerConfig) -> _Place:
    journal = _journal(config)
    config = in_force(config)
    users: dict[str, list[ScramCredential]] = {}
    for key, document in read_documents(journal, KIND_SCRAM).items():
        _, name, credential = parse_credential(key, document)
        users.setdefault(name, []).append(credential)
    return _Place(
        config=config,
        listeners=tuple((one, listener_security(config, one)) for one in config.listeners),
        users=users,
        acls=tuple(parse_acl(document) for document in read_documents(journal, KIND_ACL).values()),
        super_users=tuple(parse_principals(config.super_users)),
    )


# --- listeners and certificates -----------------------------------------------------------------


def _listeners(place: _Place) -> Iterator[Finding]:
    for listener, security in place.listeners:
        check = f"listener {listener.name}"
        if listener.is_loopback:
            continue
        if security.protocol == "PLAINTEXT":
            yield warn(
                check,
                f"{listener.address} is open to everyone who reaches it (insecure.allow)",
                "use SASL_SSL (tidelog serve --secure), or listen on 127.0.0.1",
            )
        if security.protocol == "SASL_PLAINTEXT":
            sends = "PLAIN" in security.mechanisms
            what = "passwords and records" if sends else "records"
            yield (bad if sends else warn)(
                check, f"{listener.address} sends {what} in clear", "use SASL_SSL"
            )
        if (
            security.protocol == "SSL"
            and security.tls is not None
            and security.tls.client_auth != "required"
            and not place.has_authorizer
        ):
            yield warn(
                check,
                f"{listener.address} encrypts, but serves everyone who reaches it",
                "ask for certificates (ssl.client.auth=required) or users (SASL_SSL)",
            )


def _certificates(place: _Place) -> Iterator[Finding]:
    metrics = place.config.metrics_listener
    more = [] if metrics is None else [(metrics, listener_security(place.config, metrics))]
    for listener, security in (*place.listeners, *more):
        if security.tls is not None:
            yield from _certificate(place.config, listener, security.tls)


def _certificate(
    config: BrokerConfig, listener: Listener, settings: TlsSettings
) -> Iterator[Finding]:
    check = f"certificate of {listener.name}"
    cure = "put a new one in its place (tidelog docs security); SIGHUP makes the broker read it"
    try:
        _, certificate = build_context(settings, reveal)
        revocations_in_force_ms(settings)
    except TlsUnusable as error:
        at_run_time = ",".join(stores_set_at_run_time(config, listener))
        yield bad(
            check,
            str(error),
            f"{at_run_time} was set at run time: put a store that can be used at this path, or "
            "remove the setting from a running broker (kafka-configs.sh --delete-config)"
            if at_run_time
            else "correct the ssl.* settings or the files that they name",
        )
        return
    now_ms = int(time.time() * 1000)
    days = (certificate.not_after_ms - now_ms) // _DAY_MS
    if now_ms > certificate.not_after_ms:
        yield bad(check, f"{certificate.subject} has expired {-days} days ago", cure)
    elif now_ms < certificate.not_before_ms:
        yield bad(check, f"{certificate.subject} is not valid yet", "set the clock, or renew it")
    elif days < EXPIRY_WARNING_DAYS:
        yield warn(check, f"{certificate.subject} expires in {days} days", cure)
    weak = [suite for suite in settings.cipher_suites if is_weak(suite)]
    if weak:
        yield warn(
            f"cipher suites of {listener.name}",
            f"{_listed(weak)} may leak what they encrypt (CBC)",
            "leave them out of ssl.cipher.suites once no client needs them",
        )
    yield from _revocations(listener, settings, now_ms)
    for host in _hosts(config, listener):
        if host not in _ANY_HOST and not _covers(certificate.names, host):
            names = ", ".join(certificate.names) or "no name"
            yield warn(
                check,
                f"it is for {names}, but clients connect to {host}",
                f"make one with the name {host}, or advertise another address",
            )


def _identity_providers(place: _Place) -> Iterator[Finding]:
    for listener, security in place.listeners:
        check, settings = f"identity provider of {listener.name}", security.oauth
        if settings is not None and settings.unsecured:
            yield warn(
                check,
                "tokens need no signature: everyone on this machine may be any user",
                "set sasl.oauthbearer.jwks.endpoint.url, and remove sasl.oauthbearer.unsecured",
            )
        elif settings is not None:
            try:
                read_identity_keys(settings, 0)
            except MechanismUnusable as error:
                yield _unusable(check, error)


def _kerberos(place: _Place) -> Iterator[Finding]:
    for listener, security in place.listeners:
        if security.kerberos is None:
            continue
        check = f"Kerberos of {listener.name}"
        host = _hosts(place.config, listener)[0]
        host = socket.gethostname() if host in _ANY_HOST else host
        try:
            missing = missing_key(security.kerberos, reveal, host)
        except MechanismUnusable as error:
            yield _unusable(check, error)
            continue
        if missing:
            yield warn(
                check,
                f"there is no key for {missing}, but the broker tells its clients to connect to "
                f"{host}",
                f"put the key of {missing} into the keytab, or set advertised.listeners to a name "
                "that it has",
            )


def _unusable(check: str, error: MechanismUnusable) -> Finding:
    problem, _, cure = str(error).rpartition("; ")
    return bad(check, problem or cure, cure if problem else "see tidelog docs security")


def _hosts(config: BrokerConfig, listener: Listener) -> list[str]:
    """Where clients connect."""
    hosts = [one.host for one in config.advertised_listeners if one.name == listener.name]
    return hosts or [listener.host]


def _revocations(listener: Listener, settings: TlsSettings, now_ms: int) -> Iterator[Finding]:
    in_force_ms = revocations_in_force_ms(settings)
    check, cure = f"revocation lists of {listener.name}", "put the next list in its place"
    if in_force_ms is None:
        return
    begin_ms, end_ms = in_force_ms
    if now_ms < begin_ms:
        yield bad(check, "one is not in force yet: clients are refused", "set the clock, or wait")
    if end_ms is None:
        return
    days = (end_ms - now_ms) // _DAY_MS
    if days < 0:
        yield bad(check, f"one has ended {-days} days ago: clients are refused", cure)
    elif days < 1:
        yield warn(check, "one ends within a day, and clients are refused then", cure)


def _covers(names: Iterable[str], host: str) -> bool:
    """Whether a certificate for `names` is one for `host`, as clients compare them."""
    wanted = host.lower()
    for name in names:
        known = name.lower()
        if known == wanted or (known.startswith("*.") and known[1:] == wanted[wanted.find(".") :]):
            return True
    return False


# --- files --------------------------------------------------------------------------------------


def _files(place: _Place) -> Iterator[Finding]:
    config = place.config
    named = [one.tls for _, one in place.listeners if one.tls is not None]
    if config.metrics_listener is not None:
        metrics = listener_security(config, config.metrics_listener).tls
        named += [] if metrics is None else [metrics]
    keys = [settings.keystore_location for settings in named]
    secrets = [
        path
        for secret in (*config.secrets.values(), *config.dynamic_secrets.values())
        for path in (secret.file, *secret.provided_by)
    ]
    own = [f"{config.data_dir}/{name}" for name in (JOURNAL_FILE, "ca.key", PROPERTIES)]
    for path in dict.fromkeys(path for path in (*keys, *secrets, *own) if path):
        yield from _secret_file(path, "a secret")
    effects = dict.fromkeys((one.truststore_location for one in named), "name whom to trust")
    for path, effect in {**effects, config.audit_log_file: "hide what they did"}.items():
        if path and _mode(path) & (stat.S_IWGRP | stat.S_IWOTH):
            yield bad(
                f"file {path}",
                f"other users may write it (mode {_mode(path):04o}), and so {effect}",
                f"chmod go-w {path}",
            )
    for origin in dict.fromkeys(
        config.settings[name].origin
        for name, secret in config.secrets.items()
        if secret.is_literal and name in config.settings
    ):
        yield from _secret_file(origin, "a password in clear")


def _secret_file(path: str, what: str) -> Iterator[Finding]:
    mode = _mode(path)
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        yield bad(
            f"file {path}",
            f"it has {what}, and users beside its own may read or write it (mode {mode:04o})",
            f"chmod 600 {path}",
        )


def _mode(path: str) -> int:
    """The permissions of a file; 0 for one that is missing or is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else 0


# --- users --------------------------------------------------------------------------------------


def _users(place: _Place) -> Iterator[Finding]:
    for listener, security in place.listeners:
        if security.mechanisms and _PASSWORDS.issuperset(security.mechanisms) and not place.users:
            yield bad(
                f"listener {listener.name}",
                "it asks for users, and there are none",
                f"tidelog user add admin --data-dir {place.config.data_dir}",
            )
    weak = [
        name
        for name, credentials in sorted(place.users.items())
        if any(one.iterations < ITERATIONS_GOOD for one in credentials)
    ]
    if weak:
        yield warn(
            "users",
            f"the keys of {_listed(weak)} have fewer than {ITERATIONS_GOOD} iterations",
            f"set these passwords again: tidelog user passwd NAME --iterations {ITERATIONS_GOOD}",
        )
    bare = [
        name
        for name, credentials in sorted(place.users.items())
        if any(len(one.salt) < SALT_BYTES_GOOD for one in credentials)
    ]
    if bare:
        yield warn(
            "users",
            f"the keys of {_listed(bare)} have a salt of less than {SALT_BYTES_GOOD} bytes",
            "set these passwords again: tidelog user passwd NAME",
        )
    if place.has_authorizer:
        yield from _super_users(place)
        yield from _users_without_rules(place)


def _super_users(place: _Place) -> Iterator[Finding]:
    if not place.super_users and not place.acls and not place.config.allow_everyone_if_no_acl_found:
        yield bad(
            "super users",
            "there is an authorizer, but no super user and no rule: everything is refused",
            "set super.users=User:admin",
        )
    if ANONYMOUS in place.super_users:
        yield bad(
            "super users",
            f"{ANONYMOUS} is one: who proves nothing may do everything",
            "take it out of super.users, and give rules to named users",
        )
    knows_others = any(
        not _PASSWORDS.issuperset(security.mechanisms)
        or (security.tls is not None and security.tls.client_auth != "none")
        for _, security in place.listeners
    )  # users of certificates, identity providers and Kerberos, who have no credentials here
    for one in place.super_users:
        if one.type != USER_TYPE or one.name == WILDCARD:
            yield warn(
                "super users", f"{one} never matches", "name single users: super.users=User:admin"
            )
        elif one != ANONYMOUS and one.name not in place.users and not knows_others:
            yield warn(
                "super users",
                f"{one} is one, but there is no such user",
                "correct the name, or take it out: who makes that user gets every right",
            )


def _users_without_rules(place: _Place) -> Iterator[Finding]:
    named = {acl.principal for acl in place.acls} | {str(one) for one in place.super_users}
    idle = [name for name in sorted(place.users) if f"{USER_TYPE}:{name}" not in named]
    if idle and ANY_USER not in named and not place.config.allow_everyone_if_no_acl_found:
        yield warn(
            "users",
            f"{_listed(idle)} may do nothing: no rule names them",
            "tidelog acl add --user NAME --produce TOPIC, or tidelog user remove NAME",
        )


# --- rules --------------------------------------------------------------------------------------


def _rules(place: _Place) -> Iterator[Finding]:
    if place.acls and not place.has_authorizer:
        yield warn(
            "rules",
            f"{format_count(len(place.acls), 'rule')}, but no authorizer: none of them counts",
            "set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
    if place.has_authorizer and place.config.allow_everyone_if_no_acl_found:
        yield warn(
            "rules",
            "everyone may use what no rule names, and make rules while none is for the cluster",
            "set allow.everyone.if.no.acl.found=false, and add the rules that are needed",
        )
    for acl in place.acls:
        is_for_all = acl.principal == ANY_USER and acl.host == WILDCARD
        if is_for_all and acl.permission == Permission.ALLOW:
            yield warn("rules", f"everyone is let in: {acl}", "name the users that need it")
        if (reason := why_it_never_matches(acl, place.super_users)) is not None:
            is_deny = acl.permission == Permission.DENY
            yield (bad if is_deny else warn)(
                "rules",
                f"it never matches, {reason}: {acl}",
                "it protects nothing: remove it and add one that matches (tidelog acl)"
                if is_deny
                else "remove it (tidelog acl remove)",
            )


# --- the metrics port ---------------------------------------------------------------------------


def _metrics_port(place: _Place) -> Iterator[Finding]:
    config = place.config
    listener = config.metrics_listener
    if listener is None or config.metrics_auth != "none":
        return
    if not listener.is_loopback:
        shows = not place.has_authorizer and config.insecure_allow
        yield warn(
            "metrics port",
            f"{listener.address} shows {'everything' if shows else 'figures without names'} to "
            "everyone who reaches it",
            "set metrics.auth=basic and metrics.listener.security=tls",
        )
    elif place.has_authorizer:
        yield warn(
            "metrics port",
            f"every user of {socket.gethostname()} reads names of topics and times of records",
            "set metrics.auth=basic if others use this machine",
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    rest = len(names) - NAMES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
