"""``--command-config``: a client.properties file of Kafka's Java clients, for this program.

Only the keys that say where the broker is and how the connection is secured count. A key of these
kinds that this program cannot honour is refused, because a connection that is less secured than
its file says would be worse than none. All other keys are for other clients and have no effect.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from client.core.options import MECHANISMS

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FILES = {"ssl.truststore.location": "ca_file", "ssl.keystore.location": "certificate_file"}
_PEM_KEYS = ("ssl.truststore.type", "ssl.keystore.type")
_WITHOUT_EFFECT = (
    "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "sasl.client.callback.handler.class",
)  # fmt: skip
_HONOURED = (
    *_FILES, *_PEM_KEYS, "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "ssl.key.password", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
_LOGIN = re.compile(
    r"""\s*[\w.]+\.(?:Scram|Plain)LoginModule\s+required(?P<options>(?:\s+[\w.]+\s*=\s*
    (?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+))*)\s*;\s*""",
    re.VERBOSE | re.DOTALL,
)
_OPTION = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)


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


def read_client_properties(path: str) -> ClientProperties:
    """The security that a client.properties file describes.

    Raises:
        CommandFailed: a value is wrong, or a key cannot be honoured; the sentence has the cure.
        OSError: the file cannot be read.
    """
    found = _load(path)
    for key in found:
        if key.startswith(("ssl.", "sasl.")) and key not in (*_HONOURED, *_WITHOUT_EFFECT):
            honoured = ", ".join(sorted(_HONOURED))
            raise _refused(path, key, f"remove it; this program honours only {honoured}")
    protocol = found.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        reason = f"{protocol!r}: write one of {', '.join(_PROTOCOLS)}"
        raise _refused(path, "security.protocol", reason)
    tls = protocol.endswith("SSL")
    mechanism, login = _authentication(path, found) if protocol.startswith("SASL") else ("", {})
    return ClientProperties(
        bootstrap=found.get("bootstrap.servers", "").strip(),
        tls=tls,
        files=_files(path, found) if tls else {},
        key_password=found.get("ssl.key.password", "") if tls else "",
        check_hostname=bool(found.get("ssl.endpoint.identification.algorithm", "https").strip()),
        mechanism=mechanism,
        username=login.get("username", ""),
        password=login.get("password", ""),
    )


def _refused(path: str, key: str, reason: str) -> CommandFailed:
    return CommandFailed(f"{path}: {key}: {reason}", ExitCode.USAGE)


def _load(path: str) -> dict[str, str]:
    import javaproperties  # most commands have no such file

    try:
        return dict(javaproperties.loads(Path(path).read_text(encoding="utf-8")))
    except ValueError as error:
        raise CommandFailed(f"{path} is no .properties file: {error}", ExitCode.USAGE) from None


def _files(path: str, found: dict[str, str]) -> dict[str, str]:
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


def _authentication(path: str, found: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The mechanism, and the options of the JAAS line."""
    mechanism = found.get("sasl.mechanism", "").strip()
    if mechanism not in MECHANISMS:
        raise _refused(
            path, "sasl.mechanism", f"{mechanism!r}: write one of {', '.join(MECHANISMS)}"
        )
    login = _login(found.get("sasl.jaas.config", ""))
    if not login.get("username") or "password" not in login:
        raise _refused(
            path,
            "sasl.jaas.config",
            "write org.apache.kafka.common.security.scram.ScramLoginModule (or "
            '...plain.PlainLoginModule) required username="NAME" password="PASSWORD";',
        )
    return mechanism, login


def _login(text: str) -> dict[str, str]:
    """The options of a JAAS line, empty if it is none of the modules that are understood."""
    match = _LOGIN.fullmatch(text)
    if match is None:
        return {}
    return {
        name: re.sub(r"\\(.)", r"\1", double or single) if double or single else bare
        for name, double, single, bare in _OPTION.findall(match["options"])
    }
