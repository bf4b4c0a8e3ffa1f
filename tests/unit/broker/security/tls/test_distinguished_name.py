"""Subjects of certificates, as Java writes them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from broker.security.tls.distinguished_name import MalformedName, subject_of
from tests.support.certificates import authority, der_of, signed

SUBJECTS = {
    "/C=DE/ST=Bayern/L=München/O=Example, Inc. x\\+y/OU=a/CN=bob": (
        "CN=bob,OU=a,O=Example\\, Inc. x\\+y,L=München,ST=Bayern,C=DE"
    ),
    "/CN=a\\/b/UID=7": "UID=7,CN=a/b",
    "/CN=#hash inside # too": "CN=\\#hash inside \\# too",
    "/CN= leading and trailing ": "CN=\\ leading and trailing\\ ",
    '/CN=q"u;o<t>e\\\\': 'CN=q\\"u\\;o\\<t\\>e\\\\',
    "/DC=org/DC=example/CN=x": "CN=x,DC=example,DC=org",
    "/serialNumber=42/CN=bob": "CN=bob,2.5.4.5=#13023432",
    "/emailAddress=a@b.c/CN=bob": "CN=bob,1.2.840.113549.1.9.1=#16056140622e63",
}

JAVA = """
import java.io.*; import java.security.cert.*; import javax.security.auth.x500.X500Principal;
public class Name { public static void main(String[] a) throws Exception {
  for (String f : a) { X509Certificate c = (X509Certificate) CertificateFactory.getInstance("X.509")
    .generateCertificate(new FileInputStream(f));
    new PrintStream(System.out, true, "UTF-8").println(c.getSubjectX500Principal().getName()); } } }
"""


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("names"))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_names_are_javas(signer: Path, subject: str) -> None:
    pem = signed(signer.parent, signer, f"n{abs(hash(subject))}", subject=subject)
    assert subject_of(der_of(pem)) == SUBJECTS[subject]


def test_java_agrees(signer: Path, tmp_path: Path) -> None:
    java = shutil.which("java")
    assert java is not None, "this test needs a JDK on the PATH"
    (tmp_path / "Name.java").write_text(JAVA)
    files = []
    for number, subject in enumerate(SUBJECTS):
        files.append(str(tmp_path / f"{number}.der"))
        pem = signed(signer.parent, signer, f"j{number}", subject=subject)
        Path(files[-1]).write_bytes(der_of(pem))
    done = subprocess.run(
        [java, "-Dfile.encoding=UTF-8", str(tmp_path / "Name.java"), *files],
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.decode().splitlines() == list(SUBJECTS.values())


@pytest.mark.parametrize("cut", [0, 1, 10, 60, 100])
def test_what_is_cut_is_no_name(signer: Path, cut: int) -> None:
    certificate = der_of(signer)
    with pytest.raises(MalformedName):
        subject_of(certificate[:cut])
