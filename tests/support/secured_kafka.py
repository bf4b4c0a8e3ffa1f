"""Apache Kafka with TLS and SASL, and the certificates for it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka_peer import KafkaPeer, free_ports, tool_command

USER, PASSWORD = "ann", "s3cret"


@dataclass(frozen=True)
class Keys:
    """PEM files: an authority, and a server's and a client's certificate with its key in front."""

    authority: Path
    server: Path
    client: Path


def make_keys(folder: Path) -> Keys:
    """Certificates of 127.0.0.1 and localhost for a day."""

    def openssl(*arguments: object) -> None:
        command = ["openssl", *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)

    new_key = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *new_key, "-days", 1, "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=authority")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", f"/CN={name}")  # fmt: skip
        openssl("x509", "-req", "-days", 1, "-in", f"{name}.csr", "-out", f"{name}.crt",
                "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-extfile", "names")  # fmt: skip
        whole = (folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text()
        (folder / f"{name}.pem").write_text(whole)
    return Keys(folder / "ca.pem", folder / "server.pem", folder / "client.pem")


@contextmanager
def secured_kafka(folder: Path, keys: Keys) -> Iterator[KafkaPeer]:
    """Apache Kafka with every kind of listener and one user."""
    jaas = "org.apache.kafka.common.security"
    settings = {
        "log.retention.ms": "-1",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = (
            f'{jaas}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                f"{jaas}.scram.ScramLoginModule required;"
            )
    names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ports = dict(zip(names, free_ports(3), strict=True))
    with KafkaPeer(folder, settings=settings, heap="512m", listeners=ports) as peer:
        # Kafka refuses two mechanisms of a user in one request.
        for bits in (256, 512):
            command = tool_command(
                "kafka.admin.ConfigCommand", "--bootstrap-server", peer.bootstrap, "--alter",
                "--entity-type", "users", "--entity-name", USER,
                "--add-config", f"SCRAM-SHA-{bits}=[password={PASSWORD}]",
            )  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        yield peer
