"""TLS contexts: every form of key, what is refused, and reloading."""

import os
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from broker.security.tls.contexts import TlsContexts, TlsUnusable, build_context
from config.security.cipher_suites import SUITES_OF_TLS_1_2, SUITES_OF_TLS_1_3
from config.security.keys import TlsSettings
from config.values import Secret
from tests.support.certificates import authority, openssl, revocations, signed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    signer = authority(directory)
    signed(directory, signer, "one")
    signed(directory, signer, "two")
    signed(directory, signer, "locked", password="sesame")
    signed(directory, signer, "device", subject="/O=Example/CN=device-7")
    revocations(directory, directory / "lists").rename(directory / "revoked.pem")
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
    kind: str = "PEM",
    store_password: str | None = None,
    trust_kind: str = "PEM",
    trust_password: str | None = None,
    **more: Any,
) -> TlsSettings:
    def secret(text: str | None) -> Secret | None:
        return None if text is None else Secret(text)

    return TlsSettings(
        keystore_type=kind,
        keystore_location=str(location),
        keystore_password=secret(store_password),
        key_password=secret(password),
        keystore_key=secret(key),
        certificate_chain=secret(chain),
        truststore_type=trust_kind,
        truststore_location=str(trust),
        truststore_password=secret(trust_password),
        truststore_certificates=None,
        client_auth=client_auth,
        principal_mapping_rules="DEFAULT",
        enabled_protocols=protocols,
        **more,
    )


def reveal(secret: Secret) -> str:
    return secret.reveal(lambda path: Path(path).read_text(), {})


def built_context(settings: TlsSettings) -> ssl.SSLContext:
    return build_context(settings, reveal)[0]


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
    parts: Any = certificate["subject"]
    return str(dict(pair for rdn in parts for pair in rdn)["commonName"])


def test_a_pem_file(place: Path) -> None:
    near, _ = shake_hands(built_context(settings(location=place / "one.pem")), place)
    assert subject(near) == "one"
    assert near.version() == "TLSv1.3"


def test_an_encrypted_key(place: Path) -> None:
    built = built_context(settings(location=place / "locked.pem", password="sesame"))
    assert subject(shake_hands(built, place)[0]) == "locked"


@pytest.mark.parametrize("separator", ["\n", " "])
def test_inline_pem_with_blanks_for_line_breaks(place: Path, separator: str) -> None:
    key = (place / "one.key").read_text().replace("\n", separator)
    chain = openssl("x509", "-in", str(place / "one.pem")).decode().replace("\n", separator)
    built = built_context(settings(key=key, chain=chain))
    assert subject(shake_hands(built, place)[0]) == "one"


def test_secrets_from_files(place: Path) -> None:
    built = built_context(settings(key=f"file:{place}/one.key", chain=f"file:{place}/one.pem"))
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
        (
            lambda place: settings(
                location=place / "one.pem", client_auth="required", trust=place / "revoked.pem"
            ),
            "revoked.pem: there is no certificate in it",
        ),
        (
            lambda place: settings(
                location=place / "one.pem", client_auth="required", trust=place / "one.key"
            ),
            "one.key: there is no certificate in it",
        ),
        (
            lambda place: settings(location=place / "one.pem", trust=place / "gone"),
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
        built_context(made(place))


def test_old_versions_are_not_served(place: Path) -> None:
    server = built_context(settings(location=place / "one.pem", protocols=("TLSv1.3",)))
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(server, place, client=client)
    assert built_context(settings(location=place / "one.pem")).minimum_version == (
        ssl.TLSVersion.TLSv1_2
    )


@pytest.mark.parametrize(("auth", "sends", "passes"), [
    ("none", False, True), ("none", True, True),
    ("requested", False, True), ("requested", True, True),
    ("required", False, False), ("required", True, True),
])  # fmt: skip
def test_clients_certificates(place: Path, auth: str, sends: bool, passes: bool) -> None:
    server = built_context(
        settings(location=place / "one.pem", client_auth=auth, trust=place / "ca.pem")
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


DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000) + DAY_MS


@pytest.fixture
def live(place: Path, tmp_path: Path) -> Path:
    path = tmp_path / "live.pem"
    path.write_bytes((place / "one.pem").read_bytes())
    return path


def test_a_failed_reload_keeps_the_certificate(place: Path, live: Path) -> None:
    contexts = TlsContexts(settings(location=live), reveal, now_ms=NOW_MS)
    live.write_bytes((place / "one.key").read_bytes() + b"half a certif")
    with pytest.raises(TlsUnusable):
        contexts.reload(NOW_MS)
    assert subject(shake_hands(contexts.current, place)[0]) == "one"
    assert contexts.certificate.subject == "CN=one"
    live.write_bytes((place / "two.pem").read_bytes())
    contexts.reload(NOW_MS)
    assert subject(shake_hands(contexts.current, place)[0]) == "two"
    assert contexts.certificate.subject == "CN=two"


@pytest.mark.parametrize(
    ("days", "complaint"), [(31, "has expired on"), (-2, "is not valid before")]
)
def test_a_certificate_out_of_its_time_is_not_used(live: Path, days: int, complaint: str) -> None:
    contexts = TlsContexts(settings(location=live), reveal, now_ms=NOW_MS)
    before = contexts.current
    with pytest.raises(TlsUnusable, match=f"CN=one {complaint} 20"):
        contexts.reload(NOW_MS + days * DAY_MS)
    assert contexts.current is before


@pytest.mark.parametrize("auth", ["none", "required"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_what_is_known_of_the_certificate(place: Path, auth: str, version: str) -> None:
    contexts = TlsContexts(
        settings(
            location=place / "one.pem",
            client_auth=auth,
            trust=place / "ca.pem",
            protocols=(version,),
        ),
        reveal,
        now_ms=NOW_MS,
    )
    own = contexts.certificate
    assert (own.subject, own.names) == ("CN=one", ("localhost", "127.0.0.1"))
    words = openssl("x509", "-in", str(place / "one.pem"), "-noout", "-fingerprint", "-sha256")
    assert words.decode().partition("=")[2].strip().replace(":", "").lower() == own.fingerprint
    assert own.not_after_ms - own.not_before_ms == 30 * DAY_MS
    assert abs(own.not_before_ms - NOW_MS) < 2 * DAY_MS


def test_an_intermediate_authority_may_be_trusted_alone(place: Path, tmp_path: Path) -> None:
    """As Java, which needs no root above what its trust store has."""
    (tmp_path / "device.pem").write_bytes(openssl("x509", "-in", str(place / "device.pem")))
    server = built_context(
        settings(location=place / "one.pem", client_auth="required", trust=tmp_path / "device.pem")
    )
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.load_cert_chain(place / "device.pem")
    _, far = shake_hands(server, place, client=client)
    assert far.getpeercert(binary_form=True)


class TestChangesOfFiles:
    @pytest.fixture
    def contexts(self, live: Path) -> TlsContexts:
        contexts = TlsContexts(settings(location=live), reveal, now_ms=NOW_MS)
        assert not contexts.has_changed()
        return contexts

    def test_a_file_written_in_place(self, contexts: TlsContexts, live: Path, place: Path) -> None:
        live.write_bytes((place / "two.pem").read_bytes())
        assert contexts.has_changed()
        contexts.reload(NOW_MS)
        assert not contexts.has_changed()

    def test_a_file_renamed_over_it(self, contexts: TlsContexts, live: Path, place: Path) -> None:
        fresh = live.with_suffix(".new")
        fresh.write_bytes((place / "one.pem").read_bytes())
        status = live.stat()
        os.utime(fresh, ns=(status.st_atime_ns, status.st_mtime_ns))
        fresh.rename(live)
        assert contexts.has_changed()

    def test_a_missing_file_is_one_change(self, contexts: TlsContexts, live: Path) -> None:
        live.unlink()
        assert contexts.has_changed()
        with pytest.raises(TlsUnusable):
            contexts.reload(NOW_MS)
        assert not contexts.has_changed()

    def test_a_link_that_moves(self, place: Path, tmp_path: Path) -> None:
        """A secret in Kubernetes: the file is a link through a directory that is a link."""
        for name in ("one", "two"):
            (tmp_path / f"..{name}").mkdir()
            (tmp_path / f"..{name}" / "tls.pem").hardlink_to(place / "one.pem")
        data, file = tmp_path / "..data", tmp_path / "tls.pem"
        data.symlink_to("..one")
        file.symlink_to("..data/tls.pem")
        contexts = TlsContexts(settings(location=file), reveal, now_ms=NOW_MS)
        assert not contexts.has_changed()
        (tmp_path / "fresh").symlink_to("..two")
        (tmp_path / "fresh").rename(data)
        assert contexts.has_changed()

    def test_files_of_secrets_and_authorities(self, place: Path, tmp_path: Path) -> None:
        for name in ("one.key", "one.pem", "ca.pem"):
            (tmp_path / name).write_bytes((place / name).read_bytes())
        contexts = TlsContexts(
            settings(
                key=f"file:{tmp_path}/one.key",
                chain=f"file:{tmp_path}/one.pem",
                trust=tmp_path / "ca.pem",
                client_auth="required",
            ),
            reveal,
            now_ms=NOW_MS,
        )
        for name in ("one.key", "one.pem", "ca.pem"):
            (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
            assert contexts.has_changed(), name
            contexts.reload(NOW_MS)


AES_128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def speaking(place: Path, version: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.minimum_version = client.maximum_version = version
    if ciphers:
        client.set_ciphers(ciphers)
    return client


class TestSuites:
    def test_a_suite_that_is_not_named_is_refused(self, place: Path) -> None:
        server = built_context(settings(location=place / "one.pem", cipher_suites=(AES_128,)))
        named = speaking(place, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256")
        near, _ = shake_hands(server, place, client=named)
        cipher = near.cipher()
        assert cipher is not None
        assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        other = speaking(place, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384")
        with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
            shake_hands(server, place, client=other)

    def test_a_version_without_a_suite_is_not_served(self, place: Path) -> None:
        server = built_context(settings(location=place / "one.pem", cipher_suites=(AES_128,)))
        with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
            shake_hands(server, place, client=speaking(place, ssl.TLSVersion.TLSv1_3))
        server = built_context(
            settings(location=place / "one.pem", cipher_suites=SUITES_OF_TLS_1_3)
        )
        assert shake_hands(server, place)[0].version() == "TLSv1.3"
        with pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
            shake_hands(server, place, client=speaking(place, ssl.TLSVersion.TLSv1_2))

    def test_the_first_suite_is_preferred(self, place: Path) -> None:
        names = (AES_128, AES_128.replace("AES_128_GCM_SHA256", "AES_256_GCM_SHA384"))
        for order in (names, names[::-1]):
            server = built_context(settings(location=place / "one.pem", cipher_suites=order))
            near, _ = shake_hands(
                server, place, client=speaking(place, ssl.TLSVersion.TLSv1_2, "ECDHE+AESGCM")
            )
            cipher = near.cipher()
            assert cipher is not None
            assert SUITES_OF_TLS_1_2[order[0]] == cipher[0]

    @pytest.mark.parametrize("more", [(), SUITES_OF_TLS_1_3])
    def test_suites_that_the_key_cannot_serve_are_refused(
        self, place: Path, more: tuple[str, ...]
    ) -> None:
        """Else TLS 1.2 would fail for every client, and TLS 1.3 would hide it."""
        suites = (*more, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
        with pytest.raises(TlsUnusable, match=r"no suite of TLSv1\.2 .* with ECDSA for a key on"):
            built_context(settings(location=place / "one.pem", cipher_suites=suites))

    def test_every_suite_that_may_be_named_is_known_to_openssl(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name, of_openssl in SUITES_OF_TLS_1_2.items():
            context.set_ciphers(of_openssl)
            found = {one["name"]: one for one in context.get_ciphers()}
            assert of_openssl in found, name
        assert {one["name"] for one in context.get_ciphers()} >= set(SUITES_OF_TLS_1_3)

    def test_the_newest_version(self, place: Path) -> None:
        server = built_context(settings(location=place / "one.pem", protocol="TLSv1.2"))
        assert shake_hands(server, place)[0].version() == "TLSv1.2"


class TestRevocations:
    @staticmethod
    def asking(place: Path, lists: Path, client_auth: str = "required") -> TlsSettings:
        return settings(
            location=place / "one.pem",
            trust=place / "ca.pem",
            client_auth=client_auth,
            crl_location=str(lists),
        )

    @staticmethod
    def client(place: Path, name: str, trust: Path | None = None) -> ssl.SSLContext:
        context = speaking(trust or place, ssl.TLSVersion.TLSv1_2)
        context.load_cert_chain(place / f"{name}.pem")
        return context

    @pytest.mark.parametrize("client_auth", ["required", "requested"])
    def test_a_revoked_certificate_is_refused(
        self, place: Path, tmp_path: Path, client_auth: str
    ) -> None:
        lists = revocations(place, tmp_path / "lists", "device")
        server = built_context(self.asking(place, lists, client_auth))
        shake_hands(server, place, client=self.client(place, "two"))
        with pytest.raises(ssl.SSLError, match="certificate revoked"):
            shake_hands(server, place, client=self.client(place, "device"))

    def test_an_authority_without_a_list_is_refused(self, place: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        authority(other)
        server = built_context(self.asking(place, revocations(other, tmp_path / "lists")))
        with pytest.raises(ssl.SSLError, match="verify failed"):
            shake_hands(server, place, client=self.client(place, "two"))

    def test_a_certificate_in_the_file_is_not_trusted(self, place: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        signer = authority(other)
        signed(other, signer, "stranger")
        lists = revocations(place, tmp_path / "lists")
        theirs = revocations(other, tmp_path / "theirs")
        lists.write_text(lists.read_text() + theirs.read_text() + signer.read_text())
        server = built_context(self.asking(place, lists))
        with pytest.raises(ssl.SSLError, match="verify failed"):
            shake_hands(server, place, client=self.client(other, "stranger", trust=place))

    def test_a_new_list_is_read(self, place: Path, tmp_path: Path) -> None:
        lists = revocations(place, tmp_path / "lists")
        contexts = TlsContexts(self.asking(place, lists), reveal, now_ms=NOW_MS)
        shake_hands(contexts.current, place, client=self.client(place, "device"))
        lists.write_bytes(revocations(place, tmp_path / "next", "device").read_bytes())
        assert contexts.has_changed()
        contexts.reload(NOW_MS)
        with pytest.raises(ssl.SSLError, match="certificate revoked"):
            shake_hands(contexts.current, place, client=self.client(place, "device"))

    def test_what_is_no_list_or_has_ended_is_refused(self, place: Path, tmp_path: Path) -> None:
        none = tmp_path / "none"
        with pytest.raises(TlsUnusable, match="No such file"):
            built_context(self.asking(place, none))
        with pytest.raises(TlsUnusable, match="no revocation list"):
            built_context(self.asking(place, place / "ca.pem"))
        none.write_text("-----BEGIN X509 CRL-----\nMAMCAQA=\n-----END X509 CRL-----\n")
        with pytest.raises(TlsUnusable, match=r"ssl\.crl\.location = .*none"):
            TlsContexts(self.asking(place, none), reveal, now_ms=NOW_MS)
        lists = revocations(place, tmp_path / "lists")
        contexts = TlsContexts(self.asking(place, lists), reveal, now_ms=NOW_MS)
        assert contexts.revocations_end_ms is not None
        assert abs(contexts.revocations_end_ms - NOW_MS - 30 * DAY_MS) < 2 * DAY_MS
        ended = revocations(place, tmp_path / "ended", days="1")
        with pytest.raises(TlsUnusable, match="a revocation list has ended on"):
            TlsContexts(self.asking(place, ended), reveal, now_ms=NOW_MS + 2 * DAY_MS)
