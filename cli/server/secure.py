"""``tidelog serve --secure``: a broker that is safe on a network, in one word.

``--tls-self-signed`` is its lesser sister: the same authority and certificate, and no users.

The data directory gets an own certificate authority, a server's certificate, the user `admin` and
`client.properties`, with which every client connects: this program's commands and Kafka's tools.
The first start makes them; later starts find them, and renew the server's certificate when it ends
soon or the addresses change. Nothing is made twice, and a crash between two files is completed by
the next start: the password is written before the user exists.
"""

import secrets
import socket
from collections.abc import Mapping

from cli.security.offline_users import add_user, users
from cli.server.authority import AUTHORITY, SERVER, ensure_server_certificate
from config import BrokerConfig, Listener
from config.security.keys import AUTHORIZERS
from storage.disk.files import Files
from values.dataclasses import dataclass

ADMIN = "admin"
PROPERTIES = "client.properties"
TLS_PROPERTIES = "client-tls.properties"
_MECHANISM = "SCRAM-SHA-512"
_ITERATIONS = 8192
_PASSWORD_BYTES = 18
_ANY_HOST = ("", "0.0.0.0", "::")
_PROTOCOL = "SASL_SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """What `prepare` made; `password` is None when the user was there before."""

    properties: str
    password: str | None


def secure_settings(data_dir: str, given: Mapping[str, str]) -> dict[str, str]:
    """`given`, the settings of the command line, with those that ``--secure`` stands for.

    What was given by name stays, except that the listener of ``--listen`` is secured.
    """
    listeners = given.get("listeners", "PLAINTEXT://127.0.0.1:9092")
    own = {
        "ssl.keystore.location": f"{data_dir}/{SERVER}",
        "authorizer.class.name": AUTHORIZERS[1],
        "super.users": f"User:{ADMIN}",
    }
    secured = {"listeners": listeners.replace("PLAINTEXT://", f"{_PROTOCOL}://", 1)}
    if listeners.startswith("SASL_"):
        secured = {"listeners": listeners}
    return {**own, **given, **secured}


def self_signed_settings(data_dir: str, given: Mapping[str, str]) -> dict[str, str]:
    """`given` with the settings that ``--tls-self-signed`` stands for; what was given stays."""
    listeners = given.get("listeners", "PLAINTEXT://127.0.0.1:9092")
    return {
        "ssl.keystore.location": f"{data_dir}/{SERVER}",
        **given,
        "listeners": listeners.replace("PLAINTEXT://", "SSL://", 1),
    }


def prepare(config: BrokerConfig, files: Files) -> Secured:
    """Make what is missing in the data directory.

    Raises:
        CommandFailed: a certificate cannot be made.
        DataDirError: the directory cannot be used.
    """
    directory = config.data_dir
    properties = f"{directory}/{PROPERTIES}"
    password = None
    # First, because it refuses a directory of another program, and one that is in use.
    if ADMIN not in users(directory):
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        text = _client_properties(f"{directory}/{AUTHORITY}", password)
        files.replace_atomically(properties, text.encode())
        add_user(directory, ADMIN, password, _MECHANISM, _ITERATIONS)
    _ensure_certificate(config, files)
    return Secured(properties=properties, password=password)


def prepare_tls(config: BrokerConfig, files: Files) -> str:
    """Make the certificate where it is missing; the file with which clients connect.

    Raises:
        CommandFailed: a certificate cannot be made.
        DataDirError: the directory cannot be used.
    """
    users(config.data_dir)  # refuses a directory of another program, and one that is in use
    _ensure_certificate(config, files)
    properties = f"{config.data_dir}/{TLS_PROPERTIES}"
    text = f"security.protocol=SSL\n{_trust(f'{config.data_dir}/{AUTHORITY}')}"
    files.replace_atomically(properties, text.encode())
    return properties


def _ensure_certificate(config: BrokerConfig, files: Files) -> None:
    metrics = config.metrics_listener
    served = (*config.listeners, *(() if metrics is None else (metrics,)))
    ensure_server_certificate(config.data_dir, _names(served), files)


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


def _client_properties(authority: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        f"security.protocol={_PROTOCOL}\n"
        f"sasl.mechanism={_MECHANISM}\n"
        f'sasl.jaas.config={module} required username="{ADMIN}" password="{password}";\n'
        f"{_trust(authority)}"
    )


def _trust(authority: str) -> str:
    return f"ssl.truststore.type=PEM\nssl.truststore.location={authority}\n"
