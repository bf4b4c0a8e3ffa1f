"""An own certificate authority and a server's certificate: the TLS side of ``serve --secure``.

The program `openssl` does the cryptography; it comes with the library that Python's `ssl` uses, so
no package is needed. Keys are P-256: a handshake with them costs the broker a thirteenth of one
with RSA. Private keys pass through files that no other user may read.
"""

import ipaddress
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from cli.failures import CommandFailed
from storage.disk.files import Files

AUTHORITY, AUTHORITY_KEY, SERVER = "ca.pem", "ca.key", "server.pem"
SERVER_DAYS = 825
"""As long as clients of all kinds accept one."""

_AUTHORITY_DAYS = 3650
_RENEW_BEFORE_S = 30 * 86_400
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_SERVER_EXTENSIONS = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName={names}
"""


def ensure_server_certificate(directory: str, names: Iterable[str], files: Files) -> bool:
    """Have `directory` hold a certificate for `names` for 30 more days; whether one was made.

    The authority is made once and stays, so that clients keep trusting it. A crash between two
    files leaves a state that the next call completes.

    Raises:
        CommandFailed: the program openssl is missing or fails.
    """
    names = list(names)
    has_authority = all(files.exists(f"{directory}/{name}") for name in (AUTHORITY, AUTHORITY_KEY))
    if not has_authority:
        key, certificate = _new_authority()
        files.replace_atomically(f"{directory}/{AUTHORITY_KEY}", key)
        files.replace_atomically(f"{directory}/{AUTHORITY}", certificate)
    elif files.exists(f"{directory}/{SERVER}") and all(_covers(directory, name) for name in names):
        return False
    pem = _new_server(directory, names)
    files.replace_atomically(f"{directory}/{SERVER}", pem)
    return True


def _new_authority() -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as place:
        key, certificate = Path(place, "key"), Path(place, "certificate")
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", str(key), "-out", str(certificate),
            "-days", str(_AUTHORITY_DAYS), "-subj", "/CN=Tidelog authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        return key.read_bytes(), certificate.read_bytes()


def _new_server(directory: str, names: list[str]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        key, request = Path(place, "key"), Path(place, "request")
        certificate, extensions = Path(place, "certificate"), Path(place, "extensions")
        extensions.write_text(
            _SERVER_EXTENSIONS.format(names=",".join(f"{_kind(name)}:{name}" for name in names))
        )
        _openssl(
            "req", *_NEW_KEY, "-keyout", str(key), "-out", str(request), "-subj", "/CN=Tidelog"
        )
        _openssl(
            "x509", "-req", "-in", str(request), "-out", str(certificate),
            "-CA", f"{directory}/{AUTHORITY}", "-CAkey", f"{directory}/{AUTHORITY_KEY}",
            "-set_serial", str(time.time_ns()), "-days", str(SERVER_DAYS),
            "-extfile", str(extensions),
        )  # fmt: skip
        return key.read_bytes() + certificate.read_bytes()


def _covers(directory: str, name: str) -> bool:
    """Whether a client that connects to `name` will accept the certificate in 30 days' time."""
    check = "-verify_ip" if _kind(name) == "IP" else "-verify_hostname"
    soon = str(int(time.time()) + _RENEW_BEFORE_S)
    done = _run(
        "verify", "-CAfile", f"{directory}/{AUTHORITY}", "-attime", soon, check, name,
        f"{directory}/{SERVER}",
    )  # fmt: skip
    return done.returncode == 0


def _kind(name: str) -> str:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "DNS"
    return "IP"


def _openssl(*words: str) -> None:
    done = _run(*words)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise CommandFailed(f"openssl {words[0]} failed: {said[0] if said else done.returncode}")


def _run(*words: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["openssl", *words], capture_output=True, check=False, umask=0o077)
    except FileNotFoundError:
        raise CommandFailed(
            "--secure makes certificates with the program openssl, which is not installed; "
            "install it, or set ssl.keystore.location to a certificate of your own "
            "(tidelog docs security)"
        ) from None
