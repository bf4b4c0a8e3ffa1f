"""Certificates for tests, made with the `openssl` program."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


def openssl(*arguments: str) -> bytes:
    """The output of one call; fails with what it said."""
    done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


STRICT_AUTHORITY = (
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,keyCertSign,cRLSign",
    "subjectKeyIdentifier=hash",
)
"""What `ssl.create_default_context` wants of an authority, from Python 3.13 on."""
STRICT_LINK = "authorityKeyIdentifier=keyid"
"""And of a certificate that another has signed."""


def authority(
    directory: Path, name: str = "ca", extensions: Sequence[str] = STRICT_AUTHORITY
) -> Path:
    """A new certificate authority; its certificate is NAME.pem, its key NAME.key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", str(key), "-out", str(certificate), "-days", "30", "-subj", f"/CN={name}",
        "-utf8", *(word for text in extensions for word in ("-addext", text)),
    )  # fmt: skip
    return certificate


def signed(
    directory: Path,
    signer: Path,
    name: str,
    *,
    subject: str | None = None,
    addresses: str = "DNS:localhost,IP:127.0.0.1",
    password: str | None = None,
) -> Path:
    """A PEM file NAME.pem with a key and a certificate signed by `signer`."""
    key, request = directory / f"{name}.key", directory / f"{name}.csr"
    extensions, pem = directory / f"{name}.ext", directory / f"{name}.pem"
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8",
        "-keyout", str(key), "-out", str(request), "-subj", subject or f"/CN={name}",
        "-multivalue-rdn",
    )  # fmt: skip
    extensions.write_text(f"subjectAltName={addresses}\n{STRICT_LINK}\n")
    certificate = openssl(
        "x509", "-req", "-in", str(request), "-CA", str(signer),
        "-CAkey", str(signer.with_suffix(".key")), "-CAcreateserial", "-days", "30",
        "-extfile", str(extensions),
    )  # fmt: skip
    text = key.read_bytes()
    if password is not None:
        text = openssl(
            "pkcs8", "-topk8", "-in", str(key), "-passout", f"pass:{password}", "-v2", "aes256"
        )
    pem.write_bytes(text + certificate)
    return pem


def der_of(pem: Path) -> bytes:
    """The certificate of a PEM file, in DER."""
    return openssl("x509", "-in", str(pem), "-outform", "DER")


def revocations(
    place: Path,
    folder: Path,
    *revoked: str,
    days: str = "30",
    dates: tuple[str, str] | None = None,
) -> Path:
    """A list of the authority in `place`, in which the named certificates are.

    In force for so many `days` from now, or between two `dates`.
    """
    folder.mkdir()
    (folder / "index").touch()
    (folder / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={folder}/index\ndefault_md=sha256\n"
        f"default_crl_days={days}\ncertificate={place}/ca.pem\nprivate_key={place}/ca.key\n"
    )
    for name in revoked:
        openssl("ca", "-config", str(folder / "ca.cnf"), "-revoke", str(place / f"{name}.pem"))
    words = [] if dates is None else ["-crl_lastupdate", dates[0], "-crl_nextupdate", dates[1]]
    list_file = str(folder / "crl.pem")
    openssl("ca", "-config", str(folder / "ca.cnf"), "-gencrl", *words, "-out", list_file)
    return folder / "crl.pem"
