"""Key stores and trust stores that Java's keytool has made."""

import ssl
import subprocess
from pathlib import Path

import pytest

from broker.security.tls.keystores import read_store
from tests.support import toolchains
from tests.support.certificates import der_of
from tests.unit.broker.security.tls.test_contexts import (
    built_context,
    settings,
    shake_hands,
    subject,
)


@pytest.mark.jvm
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["jks", "pkcs12", "pkcs12-legacy"])
def test_stores_that_keytool_has_made(tmp_path: Path, kind: str) -> None:
    program = Path(toolchains.java()).with_name("keytool")
    legacy = ["-J-Dkeystore.pkcs12.legacy"] if kind == "pkcs12-legacy" else []
    words = [str(program), *legacy]
    kind = kind.removesuffix("-legacy")
    password = "changeit"

    def keytool(*arguments: str) -> None:
        done = subprocess.run([*words, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    store, trust, exported = tmp_path / "key.store", tmp_path / "trust.store", tmp_path / "ca.pem"
    common = ("-storetype", kind, "-storepass", password)
    key_password = ("-keypass", "other-one") if kind == "jks" else ()
    keytool(
        "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-alias", "server", "-dname",
        "CN=java", "-ext", "san=dns:localhost,ip:127.0.0.1", "-ext", "bc:c", *common, *key_password,
        "-keystore", str(store),
    )  # fmt: skip
    keytool("-exportcert", "-rfc", "-alias", "server", *common, "-keystore", str(store),
            "-file", str(exported))  # fmt: skip
    keytool("-importcert", "-noprompt", "-alias", "ca", *common, "-keystore", str(trust),
            "-file", str(exported))  # fmt: skip
    found = read_store(store.read_bytes(), password, "other-one" if kind == "jks" else None)
    assert found.chain == [der_of(exported)]
    assert read_store(trust.read_bytes(), password, None).trusted == [der_of(exported)]
    built = built_context(
        settings(
            location=store, kind="JKS", store_password=password,
            password="other-one" if kind == "jks" else None,
            client_auth="required", trust=trust, trust_kind="JKS", trust_password=password,
        )
    )  # fmt: skip
    client = ssl.create_default_context(cafile=str(exported))
    (tmp_path / "client.pem").write_text(found.key_and_chain())
    client.load_cert_chain(tmp_path / "client.pem")
    near, far = shake_hands(built, tmp_path, client=client)
    assert (subject(near), subject(far)) == ("java", "java")
