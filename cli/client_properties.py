"""``--command-config``: a client.properties file of Kafka's Java clients, for this program.

Only the keys that say where the broker is and how the connection is secured count. A key of these
kinds that this program cannot honour is refused, because a connection that is less secured than
its file says would be worse than none. All other keys are for other clients and have no effect.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote

from broker.security.jaas import parse_jaas
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from client.core.options import MECHANISMS, TOKEN_MECHANISM
from values.dataclasses import dataclass

PROFILE_SUFFIX = ".properties"

_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FILES = {"ssl.truststore.location": "ca_file", "ssl.keystore.location": "certificate_file"}
_PEM_KEYS = ("ssl.truststore.type", "ssl.keystore.type")
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_WITHOUT_EFFECT = (
    "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "sasl.client.callback.handler.class", "sasl.login.callback.handler.class",
    "sasl.oauthbearer.jwt.retriever.class", "security.providers",
)  # fmt: skip
_HONOURED = (
    *_FILES, *_PEM_KEYS, "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "ssl.key.password", "ssl.endpoint.identification.algorithm", _TOKEN_URL,
)  # fmt: skip
_SECURITY = ("ssl.", "sasl.", "security.")
_MODULES = ("ScramLoginModule", "PlainLoginModule")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProperties:
    """What such a file says; empty texts where it says nothing."""

    bootstrap: str = ""
    tls: bool = False
    files: dict[str, str] = field(default_factory=dict)
    key_password: str = ""
    check_hostname: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token_file: str = ""


def read_client_properties(path: str) -> ClientProperties:
    """The security that a client.properties file describes.

    Raises:
        CommandFailed: a value is wrong, or a key cannot be honoured; the sentence has the cure.
        OSError: the file cannot be read.
    """
    return parse_client_properties(path, load_properties(path))


def parse_client_properties(path: str, found: Mapping[str, str]) -> ClientProperties:
    """What the keys and values of such a file mean; `path` is named in errors.

    Raises:
        CommandFailed: a value is wrong, or a key cannot be honoured; the sentence has the cure.
    """
    for key in found:
        if key.startswith(_SECURITY) and key not in (*_HONOURED, *_WITHOUT_EFFECT):
            honoured = ", ".join(sorted(_HONOURED))
            raise _refused(path, key, f"remove it; this program honours only {honoured}")
    protocol = found.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        reason = f"{protocol!r}: write one of {', '.join(_PROTOCOLS)}"
        raise _refused(path, "security.protocol", reason)
    tls = protocol.endswith("SSL")
    is_sasl = protocol.startswith("SASL")
    mechanism, login = _authentication(path, found) if is_sasl else ("", {})
    return ClientProperties(
        bootstrap=found.get("bootstrap.servers", "").strip(),
        tls=tls,
        files=_files(path, found) if tls else {},
        key_password=found.get("ssl.key.password", "") if tls else "",
        check_hostname=bool(found.get("ssl.endpoint.identification.algorithm", "https").strip()),
        mechanism=mechanism,
        username=login.get("username", ""),
        password=login.get("password", ""),
        token_file=login.get("token_file", ""),
    )


def keys_without_effect(keys: Iterable[str]) -> list[str]:
    """Those of the keys that change nothing here, sorted: they are for other clients."""
    return sorted(set(keys) - {*_HONOURED, "bootstrap.servers"})


def profiles_directory() -> Path:
    """Where profiles are, one file each: ``$XDG_CONFIG_HOME/tidelog/profiles``."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "tidelog" / "profiles"


def profile_file(name: str, *, must_exist: bool = True) -> Path:
    """The file of a profile.

    Raises:
        CommandFailed: the name is none, or there is no such profile.
    """
    if not _PROFILE.fullmatch(name):
        raise CommandFailed(
            f"'{name}' is no name of a profile: use letters, digits, '.', '_' and '-'",
            ExitCode.USAGE,
        )
    path = profiles_directory() / f"{name}{PROFILE_SUFFIX}"
    if must_exist and not path.is_file():
        raise CommandFailed(
            f"there is no profile {name}: see tidelog profile list, or make it with tidelog "
            f"profile set {name} bootstrap.servers=HOST:PORT",
            ExitCode.NOT_FOUND,
        )
    return path


def _refused(path: str, key: str, reason: str) -> CommandFailed:
    return CommandFailed(f"{path}: {key}: {reason}", ExitCode.USAGE)


def load_properties(path: str) -> dict[str, str]:
    """The keys and values of a .properties file.

    Raises:
        CommandFailed: it cannot be parsed.
        OSError: it cannot be read.
    """
    import javaproperties  # most commands have no such file

    try:
        return dict(javaproperties.loads(Path(path).read_text(encoding="utf-8")))
    except ValueError as error:
        raise CommandFailed(f"{path} is no .properties file: {error}", ExitCode.USAGE) from None


def _files(path: str, found: Mapping[str, str]) -> dict[str, str]:
    """The PEM files, by the field that they are for."""
    files = {}
    for key, name in _FILES.items():
        type_key = key.replace("location", "type")
        if not found.get(key):
            continue
        if found.get(type_key, "JKS").strip().upper() != "PEM":
            reason = f"{key} must be a PEM file: convert it with `openssl pkcs12` and set PEM"
            raise _refused(path, type_key, reason)
        files[name] = found[key]
    return files


def _authentication(path: str, found: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The mechanism, and the options of the JAAS line, or where the token is."""
    mechanism = found.get("sasl.mechanism", "").strip()
    if mechanism not in MECHANISMS:
        raise _refused(
            path, "sasl.mechanism", f"{mechanism!r}: write one of {', '.join(MECHANISMS)}"
        )
    if mechanism == TOKEN_MECHANISM:
        url = found.get(_TOKEN_URL, "").strip()
        if not url.startswith("file:///"):
            reason = f"{url!r}: write file:///PATH; this program reads tokens from files"
            raise _refused(path, _TOKEN_URL, reason)
        return mechanism, {"token_file": unquote(url.removeprefix("file://"))}
    module, login = parse_jaas(found.get("sasl.jaas.config", "")) or ("", {})
    if not module.endswith(_MODULES) or not login.get("username") or "password" not in login:
        raise _refused(
            path,
            "sasl.jaas.config",
            "write org.apache.kafka.common.security.scram.ScramLoginModule (or "
            '...plain.PlainLoginModule) required username="NAME" password="PASSWORD";',
        )
    return mechanism, login
