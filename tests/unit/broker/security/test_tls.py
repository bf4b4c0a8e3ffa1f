"""TLS contexts: every form of key, what is refused, and reloading."""

import ssl
from pathlib import Path

import pytest

from broker.security.tls import TlsContexts, TlsUnusable, build_context
from config.security_keys import TlsSettings
from config.values import Secret
from tests.support.certificates import authority, openssl, signed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    signer = authority(directory)
    signed(directory, signer, "one")
    signed(directory, signer, "two")
    signed(directory, signer, "locked", password="sesame")
    signed(directory, signer, "device", subject="/O=Example/CN=device-7")
    return directory


def settings(
    *,
    location: Path | str = "",
    key: str | None = None,
    chain: str | None = None,
    password: str | None = None,
    trust: Path | str = "",
    client_auth: str = "none",
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
) -> TlsSettings:
    def secret(text: str | None) -> Secret | None:
        return None if text is None else Secret(text)

    return TlsSettings(
        keystore_location=str(location),
        key_password=secret(password),
        keystore_key=secret(key),
        certificate_chain=secret(chain),
        truststore_location=str(trust),
        truststore_certificates=None,
        client_auth=client_auth,
        enabled_protocols=protocols,
    )


def reveal(secret: Secret) -> str:
    return secret.reveal(lambda path: Path(path).read_text(), {})


def shake_hands(
    server: ssl.SSLContext, place: Path, *, client: ssl.SSLContext | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory; raises what either end raises."""
    if client is None:
        client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(down, up, server_hostname="localhost")
    far = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return near, far


def subject(end: ssl.SSLObject) -> str:
    certificate = end.getpeercert()
    assert certificate is not None
    return str(dict(pair for rdn in certificate["subject"] for pair in rdn)["commonName"])


def test_a_pem_file(place: Path) -> None:
    near, _ = shake_hands(build_context(settings(location=place / "one.pem"), reveal), place)
    assert subject(near) == "one"
    assert near.version() == "TLSv1.3"


def test_an_encrypted_key(place: Path) -> None:
    built = build_context(settings(location=place / "locked.pem", password="sesame"), reveal)
    assert subject(shake_hands(built, place)[0]) == "locked"


@pytest.mark.parametrize("separator", ["\n", " "])
def test_inline_pem_with_blanks_for_line_breaks(place: Path, separator: str) -> None:
    key = (place / "one.key").read_text().replace("\n", separator)
    chain = openssl("x509", "-in", str(place / "one.pem")).decode().replace("\n", separator)
    built = build_context(settings(key=key, chain=chain), reveal)
    assert subject(shake_hands(built, place)[0]) == "one"


def test_secrets_from_files(place: Path) -> None:
    built = build_context(
        settings(key=f"file:{place}/one.key", chain=f"file:{place}/one.pem"), reveal
    )
    assert subject(shake_hands(built, place)[0]) == "one"


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda place: settings(location=place / "missing.pem"), "No such file"),
        (lambda place: settings(location=place / "one.csr"), "no PEM key"),
        (lambda place: settings(location=place / "locked.pem", password="no"), "key.password"),
        (lambda place: settings(location=place / "mixed.pem"), "does not belong"),
        (
            lambda place: settings(
                location=place / "one.pem", client_auth="required", trust=place / "gone"
            ),
            "truststore.location",
        ),
        (lambda place: settings(key="file:/nonexistent", chain="x"), "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_explained(place: Path, made: object, complaint: str) -> None:
    mixed = (place / "one.key").read_bytes() + openssl("x509", "-in", str(place / "two.pem"))
    (place / "mixed.pem").write_bytes(mixed)
    assert callable(made)
    with pytest.raises(TlsUnusable, match=complaint):
        build_context(made(place), reveal)


def test_old_versions_are_not_served(place: Path) -> None:
    server = build_context(settings(location=place / "one.pem", protocols=("TLSv1.3",)), reveal)
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(server, place, client=client)
    assert build_context(settings(location=place / "one.pem"), reveal).minimum_version == (
        ssl.TLSVersion.TLSv1_2
    )


@pytest.mark.parametrize(("auth", "sends", "passes"), [
    ("none", False, True), ("none", True, True),
    ("requested", False, True), ("requested", True, True),
    ("required", False, False), ("required", True, True),
])  # fmt: skip
def test_clients_certificates(place: Path, auth: str, sends: bool, passes: bool) -> None:
    server = build_context(
        settings(location=place / "one.pem", client_auth=auth, trust=place / "ca.pem"), reveal
    )
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # where a missing certificate fails at once
    if sends:
        client.load_cert_chain(place / "device.pem")
    if not passes:
        with pytest.raises(ssl.SSLError):
            shake_hands(server, place, client=client)
        return
    _, far = shake_hands(server, place, client=client)
    has_certificate = bool(far.getpeercert(binary_form=True))
    assert has_certificate is (sends and auth != "none")


def test_a_failed_reload_keeps_the_certificate(place: Path, tmp_path: Path) -> None:
    live = tmp_path / "live.pem"
    live.write_bytes((place / "one.pem").read_bytes())
    contexts = TlsContexts(settings(location=live), reveal)
    live.write_bytes((place / "one.key").read_bytes() + b"half a certif")
    with pytest.raises(TlsUnusable):
        contexts.reload()
    assert subject(shake_hands(contexts.current, place)[0]) == "one"
    live.write_bytes((place / "two.pem").read_bytes())
    contexts.reload()
    assert subject(shake_hands(contexts.current, place)[0]) == "two"
