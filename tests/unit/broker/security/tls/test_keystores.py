"""Key stores of Java: what is read, what is refused and how it is said, in both formats."""

import random
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from broker.security.secret_files import reveal
from broker.security.tls.contexts import TlsContexts, TlsUnusable
from broker.security.tls.keystores import StoreUnusable, read_store
from config import ConfigErrors, load
from tests.support.certificates import (
    STRICT_AUTHORITY,
    STRICT_LINK,
    authority,
    der_of,
    openssl,
    signed,
)
from tests.support.keystores import jks
from tests.unit.broker.security.tls.test_contexts import (
    built_context,
    settings,
    shake_hands,
    subject,
)

PASSWORD, OTHER = "store-påss", "key-pass"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, one below it, and a server's certificate that this one has signed."""
    directory = tmp_path_factory.mktemp("stores")
    top = authority(directory)
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=mid",
        "-keyout", str(directory / "mid.key"), "-out", str(directory / "mid.csr"),
    )  # fmt: skip
    (directory / "mid.ext").write_text("\n".join([*STRICT_AUTHORITY, STRICT_LINK]))
    middle = openssl(
        "x509", "-req", "-in", str(directory / "mid.csr"), "-CA", str(top), "-CAkey",
        str(top.with_suffix(".key")), "-CAcreateserial", "-days", "30",
        "-extfile", str(directory / "mid.ext"),
    )  # fmt: skip
    (directory / "mid.pem").write_bytes(middle)
    for name in ("one", "two", "device"):
        signed(directory, directory / "mid.pem", name)
    write_stores(directory, "one")
    (directory / "trust.jks").write_bytes(jks(PASSWORD, trusted=[der_of(top)]))
    (directory / "trust.p12").write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(load_pem_x509_certificate(top.read_bytes()), b"ca")],
            BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    return directory


def key_der(place: Path, name: str) -> bytes:
    return openssl(
        "pkcs8", "-topk8", "-nocrypt", "-in", str(place / f"{name}.key"), "-outform", "DER"
    )


def write_stores(place: Path, name: str, *, to: str = "one") -> None:
    """The stores TO.jks and TO.p12 of a certificate; in PKCS12 the chain is in no order."""
    chain = [der_of(place / f"{link}.pem") for link in (name, "mid", "ca")]
    (place / f"{to}.jks").write_bytes(jks(PASSWORD, key=key_der(place, name), chain=chain))
    certificate, top, middle = (
        load_pem_x509_certificate(openssl("x509", "-in", str(place / f"{link}.pem")))
        for link in (name, "ca", "mid")
    )
    key = load_pem_private_key((place / f"{name}.key").read_bytes(), None)
    (place / f"{to}.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"server", key, certificate, [top, middle],  # type: ignore[arg-type]
            BestAvailableEncryption(PASSWORD.encode()),
        )
    )  # fmt: skip


@pytest.mark.parametrize("suffix", ["jks", "p12"])
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_listener_shows_the_certificate_of_a_store(place: Path, suffix: str, kind: str) -> None:
    """Also under the other name, as in Java, and with the whole chain."""
    built = built_context(
        settings(location=place / f"one.{suffix}", kind=kind, store_password=PASSWORD)
    )
    assert subject(shake_hands(built, place)[0]) == "one"


@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_the_chain_is_in_order(place: Path, suffix: str) -> None:
    store = read_store((place / f"one.{suffix}").read_bytes(), PASSWORD, None)
    assert store.chain == [der_of(place / f"{link}.pem") for link in ("one", "mid", "ca")]


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_clients_are_verified_with_a_trust_store(place: Path, name: str) -> None:
    built = built_context(
        settings(
            location=place / "one.jks", kind="JKS", store_password=PASSWORD, client_auth="required",
            trust=place / name, trust_kind="JKS", trust_password=PASSWORD,
        )
    )  # fmt: skip
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    whole = (place / "device.pem").read_bytes() + (place / "mid.pem").read_bytes()
    (place / "device-chain.pem").write_bytes(whole)
    client.load_cert_chain(place / "device-chain.pem")
    assert subject(shake_hands(built, place, client=client)[1]) == "device"
    with pytest.raises(ssl.SSLError):
        shake_hands(built, place)[0].read()


def test_a_trust_store_in_jks_needs_no_password(place: Path) -> None:
    store = read_store((place / "trust.jks").read_bytes(), None, None)
    assert store.trusted == [der_of(place / "ca.pem")]


def test_a_key_with_a_password_of_its_own(place: Path) -> None:
    content = jks(
        PASSWORD, key=key_der(place, "one"), chain=[der_of(place / "one.pem")], key_password=OTHER
    )
    assert read_store(content, PASSWORD, OTHER).key == key_der(place, "one")
    with pytest.raises(StoreUnusable, match=r"ssl\.key\.password does not decrypt"):
        read_store(content, PASSWORD, None)


def complaint(content: bytes, password: str | None = PASSWORD, key: str | None = None) -> str:
    with pytest.raises(StoreUnusable) as raised:
        read_store(content, password, key).key_and_chain()
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_what_cannot_be_used_is_explained(place: Path, suffix: str) -> None:
    good = (place / f"one.{suffix}").read_bytes()
    assert "password of the store is wrong" in complaint(good, "wrong")
    assert "password of the store is wrong, or the file is damaged" in complaint(good[:-40])
    trust = (place / f"trust.{suffix}").read_bytes()
    assert "no private key entry" in complaint(trust)


def test_other_formats_are_named(place: Path) -> None:
    assert "JCEKS" in complaint(bytes.fromhex("cececece") + bytes(40))
    assert "keytool -importkeystore" in complaint(bytes.fromhex("cececece") + bytes(40))
    assert "set the type of the store to PEM" in complaint((place / "one.pem").read_bytes())
    assert "neither JKS nor PKCS12" in complaint(b"hello")
    assert "neither JKS nor PKCS12" in complaint(b"")
    assert "one password" in complaint((place / "one.p12").read_bytes(), PASSWORD, OTHER)
    with pytest.raises(StoreUnusable, match="no trusted certificate"):
        read_store((place / "one.jks").read_bytes(), PASSWORD, None).authorities()


def test_pem_in_the_setting_and_a_store_in_the_file(place: Path) -> None:
    for name in ("one.jks", "one.p12"):
        with pytest.raises(TlsUnusable, match=r"set ssl\.keystore\.type to PKCS12 or JKS"):
            built_context(settings(location=place / name))


@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_damaged_stores_are_refused_and_nothing_else_happens(place: Path, suffix: str) -> None:
    good = (place / f"one.{suffix}").read_bytes()
    source = random.Random(7)
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(source.randint(1, 4)):
            bad[source.randrange(len(bad))] = source.randrange(256)
        # Without the password of the store nothing vouches for the bytes of JKS.
        for password in (PASSWORD, None):
            try:
                read_store(bytes(bad[: source.randint(1, len(bad))]), password, None)
            except StoreUnusable:
                continue


def test_a_store_that_is_replaced_is_read_again(place: Path, tmp_path: Path) -> None:
    for suffix in ("jks", "p12"):
        live = tmp_path / f"live.{suffix}"
        live.write_bytes((place / f"one.{suffix}").read_bytes())
        now_ms = int(live.stat().st_mtime * 1000)
        contexts = TlsContexts(
            settings(location=live, kind="JKS", store_password=PASSWORD), reveal, now_ms=now_ms
        )
        assert not contexts.has_changed()
        live.write_bytes(b"half a store")
        assert contexts.has_changed()
        with pytest.raises(TlsUnusable, match="neither JKS nor PKCS12"):
            contexts.reload(now_ms)
        live.unlink()
        with pytest.raises(TlsUnusable, match=r"ssl\.keystore\.location = .*: No such file"):
            contexts.reload(now_ms)
        assert subject(shake_hands(contexts.current, place)[0]) == "one"
        write_stores(place, "two", to="next")
        live.write_bytes((place / f"next.{suffix}").read_bytes())
        contexts.reload(now_ms)
        assert subject(shake_hands(contexts.current, place)[0]) == "two"


def test_without_the_extra_the_error_names_it_and_a_way_round(place: Path) -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from broker.security.tls.keystores import StoreUnusable, read_store\n"
        f"content = open({str(place / 'one.p12')!r}, 'rb').read()\n"
        "try: read_store(content, 'x', None)\n"
        "except StoreUnusable as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "tidelog[keystores]" in done.stdout
    assert "openssl pkcs12" in done.stdout


LISTENER = {"listeners": "SSL://127.0.0.1:0"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"ssl.keystore.location": "x.pem", "ssl.keystore.password": "file:p"}, "PEM file has no"),
        ({"ssl.keystore.type": "JKS", "ssl.keystore.location": "x"}, "needs ssl.keystore.password"),
        (
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.key": "file:k",
                "ssl.keystore.certificate.chain": "file:c",
            },
            "given inline, but ssl.keystore.type is PKCS12",
        ),
        (
            {"ssl.keystore.location": "x.pem", "ssl.truststore.password": "file:p"},
            "ssl.truststore.password is set",
        ),
        ({"ssl.keystore.type": "JCEKS", "ssl.keystore.location": "x"}, "not a known word"),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigErrors, match=reason):
        load(command_line={**LISTENER, **given})
