"""``tidelog serve --secure``: a broker that is safe on a network, in one word.

``--tls-self-signed`` is its lesser sister: the same authority and certificate, and no users.

The data directory gets an own certificate authority, a server's certificate, the user `admin` and
`client.properties`, with which every client connects: this program's commands and Kafka's tools.
The first start makes them; later starts find them, and renew the server's certificate when it ends
soon or the addresses change. Nothing is made twice, a user who was removed stays removed, and a
crash between two files is completed by the next start: the password is written before the user
exists.

What the settings say is kept, whatever their source; what contradicts the option is refused.
"""

import os
import secrets
import shlex
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from broker.principal import parse_principals, user
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.security.offline_users import PROPERTIES, add_administrator, users
from cli.server.authority import AUTHORITY, SERVER, ensure_server_certificate
from client.core.options import PASSWORD_MECHANISMS
from config import BrokerConfig, Listener, Setting
from config.broker_keys import BROKER_KEYS
from config.security.keys import AUTHORIZERS, listener_security
from storage.directory.metadata_journal import JOURNAL_FILE
from storage.disk.files import Files
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.net.addresses import ReadyInfo

ADMIN = "admin"
TLS_PROPERTIES = "client-tls.properties"
SECURE, SELF_SIGNED = "SASL_SSL", "SSL"
"""The protocols of the listeners that the two options make."""

_OPTIONS = {SECURE: "--secure", SELF_SIGNED: "--tls-self-signed"}
_MECHANISM = "SCRAM-SHA-512"
_ITERATIONS = 8192
_PASSWORD_BYTES = 18
_ANY_HOST = ("", "0.0.0.0", "::")
_KEYS = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """What a data directory has for clients.

    Attributes:
        listener: where they connect.
        words: the options with which this program's commands connect.
        properties: the file with which all clients connect, or None if none fits.
        password: that of the user who was made just now, else None.
    """

    listener: Listener
    words: tuple[str, ...]
    properties: str | None
    password: str | None = None


def settings_of(protocol: str, given: Mapping[str, Setting]) -> dict[str, str]:
    """What the option for `protocol` sets: only what no source has `given`."""
    own = {"listeners": f"{protocol}://127.0.0.1:9092"}
    if not any(name in given for name in _KEYS):
        own["ssl.keystore.location"] = f"{_directory(given)}/{SERVER}"
    if protocol == SECURE:
        own["authorizer.class.name"] = AUTHORIZERS[1]
        own["super.users"] = str(user(ADMIN))
    return {name: text for name, text in own.items() if name not in given}


def _directory(given: Mapping[str, Setting]) -> str:
    name = "log.dirs"
    return given[name].text.strip() if name in given else str(BROKER_KEYS[name].default)


def prepare(protocol: str, config: BrokerConfig, files: Files) -> Secured:
    """Make what is missing in the data directory.

    Raises:
        CommandFailed: the settings contradict the option, or a certificate cannot be made.
        DataDirError: the directory cannot be used.
    """
    listener = _listener_for_clients(protocol, config)
    if protocol == SELF_SIGNED:
        users(config.data_dir)  # refuses a directory of another program, and one that is in use
        is_own = _ensure_certificate(config, files, listener)
        properties = f"{config.data_dir}/{TLS_PROPERTIES}"
        text = f"security.protocol=SSL\n{_trust(config) if is_own else ''}"
        files.replace_atomically(properties, text.encode())
        return _for_clients(config, listener, properties, is_own=is_own)
    password: str | None = None

    def make_password() -> str:
        nonlocal password
        _check_super_users(config)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        text = _client_properties(config, password, is_own=_is_own(config, listener))
        files.replace_atomically(f"{config.data_dir}/{PROPERTIES}", text.encode())
        return password

    if config.remote_standby_enable:
        is_there = True  # as far as one knows: it has the users of the broker that it follows
    else:
        if not files.exists(f"{config.data_dir}/{JOURNAL_FILE}"):
            _check_super_users(config)  # before there is anything: a refusal leaves no directory
        # First, because it refuses a directory of another program, and one that is in use.
        is_there = add_administrator(config.data_dir, ADMIN, _MECHANISM, _ITERATIONS, make_password)
    is_own = _ensure_certificate(config, files, listener)
    properties = f"{config.data_dir}/{PROPERTIES}"
    if not is_there or not files.exists(properties):
        return _for_clients(config, listener, None, is_own=is_own)
    return _for_clients(config, listener, properties, password, is_own=is_own)


def _for_clients(
    config: BrokerConfig,
    listener: Listener,
    properties: str | None,
    password: str | None = None,
    *,
    is_own: bool,
) -> Secured:
    if properties is not None:
        properties = os.path.abspath(properties)
        words: tuple[str, ...] = ("--command-config", properties)
    else:
        trust = ("--tls-ca", _authority(config)) if is_own else ("--tls",)
        words = (*trust, "--user", "NAME", "--password-file", "FILE")
    return Secured(listener=listener, words=words, properties=properties, password=password)


def how_to_connect(secured: Secured, config: BrokerConfig, ready: "ReadyInfo") -> Iterator[str]:
    """The command lines with which clients connect, as a shell reads them."""
    address = _address(secured.listener, config, ready)
    yield shlex.join(("tidelog", "topic", "list", "-b", address, *secured.words))
    if secured.properties is not None:
        words = ("--bootstrap-server", address, *secured.words)
        yield shlex.join(("kafka-topics.sh", "--list", *words))


def how_to_connect_with_own_files(config: BrokerConfig, ready: "ReadyInfo") -> str:
    """The same for the first listener of a broker whose users and certificates are not made here.

    FILE and NAME stand for what its owner knows.
    """
    listener = config.listeners[0]
    security = listener_security(config, listener)
    words = ["tidelog", "topic", "list", "-b", _address(listener, config, ready)]
    if security.tls is not None:
        words += ["--tls-ca", "FILE"]
        if security.tls.client_auth == "required":
            words += ["--tls-cert", "FILE"]
    if listener.protocol.startswith("SASL"):
        passwords = [name for name in PASSWORD_MECHANISMS if name in security.mechanisms]
        if passwords:
            words += ["--user", "NAME", "--password-file", "FILE"]
            if _MECHANISM not in passwords:
                words += ["--sasl-mechanism", passwords[-1]]
        elif "OAUTHBEARER" in security.mechanisms:
            words += ["--token-file", "FILE"]
        else:  # this program's commands have no Kerberos
            words = ["kafka-topics.sh", "--list", "--bootstrap-server", words[4]]
            words += ["--command-config", "FILE"]
    return shlex.join(words)


def _address(listener: Listener, config: BrokerConfig, ready: "ReadyInfo") -> str:
    """Where clients of a listener connect."""
    host, port = listener.host, ready.ports[listener.name]
    for advertised in config.advertised_listeners:
        if advertised.name == listener.name:
            host, port = advertised.host, advertised.port or port
    if host in _ANY_HOST:
        host = "localhost"  # it is in the certificate, as these are not
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- what the settings have to be ---------------------------------------------------------------


def _listener_for_clients(protocol: str, config: BrokerConfig) -> Listener:
    """The first listener of that protocol.

    Raises:
        CommandFailed: there is none, one is without TLS, or another setting takes protection away.
    """
    option = _OPTIONS[protocol]
    for listener in config.listeners:
        if listener.protocol not in (SECURE, SELF_SIGNED):
            raise _refused(
                config, "listeners", f"{option} needs TLS on every listener, and {listener} has "
                f"{listener.protocol}; write {protocol}://{listener.address}, or leave the "
                "setting out and give --listen",
            )  # fmt: skip
    if protocol == SECURE:
        if not config.authorizer_class_name:
            problem = "--secure needs an authorizer, and this turns it off; leave the setting out"
            raise _refused(config, "authorizer.class.name", problem)
        if config.insecure_allow:
            problem = "--secure and this contradict each other; leave one of them out"
            raise _refused(config, "insecure.allow", problem)
    usable = [one for one in config.listeners if one.protocol == protocol]
    if not usable:
        raise _refused(config, "listeners", f"{option} needs a listener with {protocol}")
    if protocol == SELF_SIGNED:
        return usable[0]
    for listener in usable:
        if _MECHANISM in listener_security(config, listener).mechanisms:
            return listener
    problem = f"--secure makes the user {ADMIN} for {_MECHANISM}; add it"
    raise _refused(config, "sasl.enabled.mechanisms", problem)


def _check_super_users(config: BrokerConfig) -> None:
    if user(ADMIN) not in parse_principals(config.super_users):
        raise _refused(
            config, "super.users", f"--secure makes the user {ADMIN}, who could do nothing; add "
            f"{user(ADMIN)}, or leave the setting out",
        )  # fmt: skip


def _refused(config: BrokerConfig, name: str, problem: str) -> CommandFailed:
    setting = config.settings.get(name)
    given = "" if setting is None else f" = {setting.shown!r} ({setting.origin})"
    return CommandFailed(f"{name}{given}: {problem}", ExitCode.CONFIG)


# --- the certificate ----------------------------------------------------------------------------


def _is_own(config: BrokerConfig, listener: Listener) -> bool:
    """Whether a listener shows the certificate that is made here."""
    tls = listener_security(config, listener).tls
    return tls is not None and tls.keystore_location == f"{config.data_dir}/{SERVER}"


def _ensure_certificate(config: BrokerConfig, files: Files, for_clients: Listener) -> bool:
    """Make the certificate if a listener shows it; whether `for_clients` does."""
    metrics = config.metrics_listener
    served = (*config.listeners, *(() if metrics is None else (metrics,)))
    if any(_is_own(config, listener) for listener in served):
        names = _names((*served, *config.advertised_listeners))
        ensure_server_certificate(config.data_dir, names, files)
    return _is_own(config, for_clients)


def _names(listeners: tuple[Listener, ...]) -> list[str]:
    """The names that clients may connect to, without doubles."""
    host_name = socket.gethostname()
    names = ["localhost", "127.0.0.1", "::1", host_name]
    for listener in listeners:
        if listener.host in _ANY_HOST:
            names += _addresses(host_name)
        else:
            names.append(listener.host)
    return list(dict.fromkeys(names))


def _addresses(host_name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host_name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    # Scoped addresses ("fe80::1%eth0") cannot stand in a certificate.
    return [str(entry[4][0]) for entry in found if "%" not in str(entry[4][0])]


def _client_properties(config: BrokerConfig, password: str, *, is_own: bool) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        f"security.protocol={SECURE}\n"
        f"sasl.mechanism={_MECHANISM}\n"
        f'sasl.jaas.config={module} required username="{ADMIN}" password="{password}";\n'
        f"{_trust(config) if is_own else ''}"
    )


def _trust(config: BrokerConfig) -> str:
    return f"ssl.truststore.type=PEM\nssl.truststore.location={_authority(config)}\n"


def _authority(config: BrokerConfig) -> str:
    return os.path.abspath(f"{config.data_dir}/{AUTHORITY}")
