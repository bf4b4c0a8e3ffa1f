"""TLS contexts of listeners, built whole and tried before they are used.

A certificate is never loaded into a context in use: OpenSSL leaves such a context broken if the key
does not fit. `build_context` makes a new one, and `TlsContexts.reload` replaces the reference once
the new one is good, so a failed reload keeps the old certificate. Connections keep the certificate
that they began with.

Python loads keys from paths only. A key that is given inline or in a store of Java goes through a
file in memory, or where there is none through one that is readable by this user only and removed at
once.

Source: Kafka `DefaultSslEngineFactory`, `SslFactory`; KIP-651 (PEM); docs/security.md.
"""

import contextlib
import os
import re
import ssl
import stat
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from broker.security.tls.certificate import Certificate, read_certificate
from broker.security.tls.keystores import Store, StoreUnusable, is_store, read_store
from broker.security.tls.revocations import RevocationsUnusable, in_force_ms, lists_in
from config.security.cipher_suites import SUITES_OF_TLS_1_2
from config.security.keys import TlsSettings
from config.values import InvalidValue, Secret
from values.dataclasses import dataclass

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
FILE_BYTES_MAX: Final = 64 << 20
"""The largest key store, trust store or revocation list."""

CLOCKS_DIFFER_MS: Final = 5 * 60 * 1000
"""A revocation list that begins within this time comes into force. It lets nobody in until then."""

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NAMES: Final = {version: name for name, version in _VERSIONS.items()}
_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)

Reveal = Callable[[Secret], str]


class TlsUnusable(Exception):
    """The TLS settings of a listener cannot be used; the message says which and why."""


def build_context(settings: TlsSettings, reveal: Reveal) -> tuple[ssl.SSLContext, Certificate]:
    """A server's context, and the certificate that it shows.

    Args:
        settings: the TLS settings of one listener.
        reveal: reads the text of a secret.

    Raises:
        TlsUnusable: a file is missing, is no PEM, or the key does not fit the certificate.
    """
    _check_files(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.set_ciphers(_openssl_names(settings) or CIPHERS)
    context.options |= (
        ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java, which trusts what it is given
    _load_key(context, settings, reveal)
    for version in versions:
        certificate = _own_certificate(context, version)
    if settings.truststore_location or settings.truststore_certificates is not None:
        _load_trusted(context, settings, reveal)  # also where no client is asked: it may be wrong
    if settings.client_auth != "none":
        required = settings.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context, certificate


def _check_files(settings: TlsSettings) -> None:
    """Refuse what could be read for ever: a request may name any path."""
    for path in files_of(settings):
        try:
            status = os.stat(path)
        except OSError:
            continue  # reading it says what is wrong
        if not stat.S_ISREG(status.st_mode):
            raise TlsUnusable(f"{path} is no file")
        if status.st_size > FILE_BYTES_MAX:
            raise TlsUnusable(f"{path} has {status.st_size} bytes, more than {FILE_BYTES_MAX}")


def _openssl_names(settings: TlsSettings) -> str:
    """OpenSSL's list of the suites of TLS 1.2 that are named; empty if none is."""
    known = SUITES_OF_TLS_1_2
    return ":".join(known[name] for name in settings.cipher_suites if name in known)


def _own_certificate(context: ssl.SSLContext, version: ssl.TLSVersion) -> Certificate:
    """The certificate that `context` shows its clients, from a handshake in memory.

    Each version is tried: a key may not be one for the suites of that version.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version = client.maximum_version = version
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    ends = (near, context.wrap_bio(to_server, to_client, server_side=True))
    try:
        for end in ends * 3:  # TLS 1.2 takes two rounds and a half
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        der = near.getpeercert(binary_form=True)
        assert der is not None
        return read_certificate(der)
    except (ssl.SSLError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "NO_SHARED_CIPHER":
            raise TlsUnusable(
                f"no suite of {_NAMES[version]} in ssl.cipher.suites is for the certificate's "
                "key; name suites with ECDSA for a key on an elliptic curve, with RSA for an RSA "
                "key"
            ) from error
        raise TlsUnusable(f"a handshake with the certificate fails: {error}") from error


def _load_key(context: ssl.SSLContext, settings: TlsSettings, reveal: Reveal) -> None:
    password = _revealed(settings.key_password, reveal) or ""
    place: contextlib.AbstractContextManager[str]
    if settings.keystore_key is not None and settings.certificate_chain is not None:
        text = "\n".join(
            _wrapped(_revealed(secret, reveal) or "")
            for secret in (settings.keystore_key, settings.certificate_chain)
        )
        place = _as_file(text)
        what = "ssl.keystore.key and ssl.keystore.certificate.chain"
    else:
        what = f"ssl.keystore.location = {settings.keystore_location}"
        if settings.keystore_type == "PEM":
            place = contextlib.nullcontext(settings.keystore_location)
        else:
            of_store = _revealed(settings.keystore_password, reveal)
            with _problems_of(what):
                store = _read(settings.keystore_location, of_store, password or None)
                place, password = _as_file(store.key_and_chain()), ""
    with _problems_of(what):
        try:
            with place as path:
                # Without this OpenSSL would ask for a missing password on the terminal.
                context.load_cert_chain(path, password=lambda: password)
        except ssl.SSLError as error:
            if settings.keystore_type == "PEM" and _is_store(settings.keystore_location):
                problem = "it is a key store of Java; set ssl.keystore.type to PKCS12 or JKS"
                raise TlsUnusable(f"{what}: {problem}") from error
            raise


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings, reveal: Reveal) -> None:
    what = f"ssl.truststore.location = {settings.truststore_location}"
    if settings.truststore_certificates is not None:
        what = "ssl.truststore.certificates"
    try:
        with _problems_of(what):
            if settings.truststore_certificates is not None:
                text = _wrapped(_revealed(settings.truststore_certificates, reveal) or "")
                context.load_verify_locations(cadata=text)
            elif settings.truststore_type == "PEM":
                context.load_verify_locations(cafile=settings.truststore_location)
            else:
                password = _revealed(settings.truststore_password, reveal)
                store = _read(settings.truststore_location, password, None)
                context.load_verify_locations(cadata=store.authorities())
    except (ValueError, TypeError) as error:
        raise TlsUnusable(f"{what}: there is no certificate in it ({error})") from error
    if not context.cert_store_stats()["x509"]:
        raise TlsUnusable(f"{what}: there is no certificate in it")
    if settings.crl_location:
        try:
            with _as_file("\n".join(_revocations(settings))) as path:
                context.load_verify_locations(cafile=path)
        except ssl.SSLError as error:
            what = f"ssl.crl.location = {settings.crl_location}"
            raise TlsUnusable(f"{what}: a revocation list cannot be read") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _revocations(settings: TlsSettings) -> list[str]:
    """The revocation lists that the settings name, each in PEM."""
    with _problems_of(f"ssl.crl.location = {settings.crl_location}"):
        return lists_in(Path(settings.crl_location).read_text("ascii", "replace"))


def revocations_in_force_ms(settings: TlsSettings) -> tuple[int, int | None] | None:
    """From when on the last of the revocation lists is in force, and when the first one ends.

    None without lists; no end if none of them says one.

    Raises:
        TlsUnusable: they cannot be read.
    """
    if not settings.crl_location or settings.client_auth == "none":
        return None
    with _problems_of(f"ssl.crl.location = {settings.crl_location}"):
        times = [in_force_ms(pem) for pem in _revocations(settings)]
    ends = [end for _, end in times if end is not None]
    return max(begin for begin, _ in times), min(ends, default=None)


def _read(path: str, password: str | None, key_password: str | None) -> Store:
    return read_store(Path(path).read_bytes(), password, key_password)


@contextlib.contextmanager
def _problems_of(what: str) -> Iterator[None]:
    """A file of the block that cannot be read or used becomes TlsUnusable, which names `what`."""
    try:
        yield
    except ssl.SSLError as error:
        raise TlsUnusable(f"{what}: {_reason(error)}") from error
    except OSError as error:
        raise TlsUnusable(f"{what}: {error.strerror or error}") from error
    except (StoreUnusable, RevocationsUnusable) as error:
        raise TlsUnusable(f"{what}: {error}") from error


def _is_store(path: str) -> bool:
    try:
        return bool(path) and is_store(Path(path).read_bytes())
    except OSError:
        return False


def _revealed(secret: Secret | None, reveal: Reveal) -> str | None:
    try:
        return None if secret is None else reveal(secret)
    except (OSError, InvalidValue, UnicodeDecodeError) as error:
        raise TlsUnusable(f"a secret of a TLS listener cannot be read: {error}") from error


def _reason(error: ssl.SSLError) -> str:
    known = {
        "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
        "BAD_DECRYPT": "ssl.key.password does not decrypt the key",
        "BAD_PASSWORD_READ": "the key is encrypted; set ssl.key.password",
        "NO_START_LINE": "there is no PEM in it",
        "PEM_LIB": "it has no PEM key, or ssl.key.password does not decrypt it",
        "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in it",
    }
    reason = error.reason or ("PEM_LIB" if "PEM lib" in str(error) else str(error))
    return known.get(reason, reason.replace("_", " ").lower())


def _wrapped(text: str) -> str:
    """PEM with its line breaks, which Kafka's settings replace by blanks."""

    def block(match: re.Match[str]) -> str:
        body = "".join(match[2].split())
        lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
        return f"-----BEGIN {match[1]}-----\n{lines}\n-----END {match[1]}-----"

    return _PEM_BLOCK.sub(block, text)


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path under which OpenSSL can read `text`, for as long as the context lasts."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:  # created with mode 0600
        file.write(text)
        file.flush()
        yield file.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A context that was tried, with what it was built from."""

    settings: TlsSettings
    stamps: "tuple[_Stamp, ...]"
    context: ssl.SSLContext
    certificate: Certificate
    revocations_in_force_ms: tuple[int, int | None] | None


def build(settings: TlsSettings, reveal: Reveal, now_ms: int) -> Built:
    """A context for `settings`, whose certificate is valid at `now_ms`.

    Raises:
        TlsUnusable: there is none.
    """
    built = _built_of_any_date(settings, reveal)
    certificate = built.certificate
    if now_ms > certificate.not_after_ms:
        raise TlsUnusable(
            f"the certificate of {certificate.subject} has expired on "
            f"{_day(certificate.not_after_ms)}; renew it"
        )
    if now_ms < certificate.not_before_ms:
        raise TlsUnusable(
            f"the certificate of {certificate.subject} is not valid before "
            f"{_day(certificate.not_before_ms)}; renew it, or set the clock"
        )
    if built.revocations_in_force_ms is not None:
        begin_ms, end_ms = built.revocations_in_force_ms
        what = f"ssl.crl.location = {settings.crl_location}: a revocation list"
        if end_ms is not None and now_ms > end_ms:
            raise TlsUnusable(f"{what} has ended on {_day(end_ms)}; put the next one in its place")
        if now_ms < begin_ms - CLOCKS_DIFFER_MS:
            raise TlsUnusable(
                f"{what} is not in force before {_day(begin_ms)}; put one in its place that is, or "
                "set the clock"
            )
    return built


def _built_of_any_date(settings: TlsSettings, reveal: Reveal) -> Built:
    # First, so that a file that is written meanwhile counts as changed at the next look.
    stamps = _stamps(settings)
    context, certificate = build_context(settings, reveal)
    return Built(
        settings=settings,
        stamps=stamps,
        context=context,
        certificate=certificate,
        revocations_in_force_ms=revocations_in_force_ms(settings),
    )


def check_successor(settings: TlsSettings, former: Certificate, next_one: Certificate) -> None:
    """Accept `next_one` as the certificate that is set at run time in place of `former`.

    Raises:
        TlsUnusable: it is for another subject, or not for all hosts, and the settings forbid that.
    """
    if not settings.allow_dn_changes and next_one.subject != former.subject:
        raise TlsUnusable(
            f"the new certificate is of {next_one.subject}, the one in force of {former.subject}; "
            "ssl.allow.dn.changes=true allows that"
        )
    missing = [name for name in former.names if name not in next_one.names]
    if not settings.allow_san_changes and missing:
        raise TlsUnusable(
            f"the new certificate is not for {', '.join(missing)}, the one in force is; "
            "ssl.allow.san.changes=true allows that"
        )


class TlsContexts:
    """The context of one listener, which another one may replace."""

    def __init__(self, settings: TlsSettings, reveal: Reveal, *, now_ms: int | None) -> None:
        """Build the first context; without `now_ms` its certificate may have expired.

        Raises:
            TlsUnusable: the settings cannot be used.
        """
        self._reveal = reveal
        self.settings = settings
        self.current: ssl.SSLContext
        self.certificate: Certificate
        self.revocations_end_ms: int | None
        self._stamps: tuple[_Stamp, ...]
        if now_ms is None:
            self.use(_built_of_any_date(settings, reveal))
        else:
            self.use(self.built(settings, now_ms))

    def has_changed(self, wanted: TlsSettings | None = None) -> bool:
        """Whether a file is another one than at the last attempt to read it, failed or not.

        Also true if `wanted` are not the settings in force.
        """
        settings = wanted or self.settings
        return settings != self.settings or self._stamps != _stamps(settings)

    def built(self, settings: TlsSettings, now_ms: int) -> Built:
        """A context for `settings`, not in force yet; for any thread.

        Raises:
            TlsUnusable: there is none.
        """
        return build(settings, self._reveal, now_ms)

    def use(self, built: Built) -> None:
        """Put `built` in force: new connections use it."""
        self.settings, self._stamps = built.settings, built.stamps
        self.current, self.certificate = built.context, built.certificate
        in_force_ms = built.revocations_in_force_ms
        self.revocations_end_ms = None if in_force_ms is None else in_force_ms[1]

    def reload(self, now_ms: int) -> None:
        """Read files and secrets again; new connections use what is found.

        Raises:
            TlsUnusable: the former context stays in use.
        """
        self._stamps = _stamps(self.settings)
        self.use(self.built(self.settings, now_ms))


def secrets_of(settings: TlsSettings) -> tuple[str, ...]:
    """The files with keys and passwords that the settings name."""
    secrets = (
        settings.keystore_password,
        settings.key_password,
        settings.truststore_password,
        settings.keystore_key,
    )
    return (settings.keystore_location, *_named(secrets))


def files_of(settings: TlsSettings) -> tuple[str, ...]:
    """The files that the settings name."""
    public = _named((settings.certificate_chain, settings.truststore_certificates))
    places = settings.truststore_location, settings.crl_location
    return tuple(path for path in (*secrets_of(settings), *places, *public) if path)


def _named(secrets: tuple[Secret | None, ...]) -> Iterator[str]:
    return (secret.file for secret in secrets if secret is not None)


_Stamp: TypeAlias = tuple[str, int, int, int] | None


def _stamps(settings: TlsSettings) -> tuple[_Stamp, ...]:
    return tuple(map(_stamp, files_of(settings)))


def _stamp(path: str) -> _Stamp:
    """What differs once a file is written, replaced, or its symbolic link is moved."""
    try:
        status = os.stat(path)
        return os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns
    except OSError:
        return None


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()
