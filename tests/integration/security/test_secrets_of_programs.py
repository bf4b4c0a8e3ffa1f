"""A broker and its commands as programs: no canary in any output, log, answer or process list."""

import base64
import contextlib
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import authority, openssl, signed
from tests.support.cli import environment, tidelog

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CANARIES = {
    name: f"canary-{name}-4711"
    for name in ("password", "wrong", "other", "key-password", "token", "bad-token", "argument")
}


class Outputs:
    """Everything that was said, by its source."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def command(self, *words: str, code: int) -> str:
        done = tidelog(*words)
        assert done.returncode == code, (words, done.returncode, done.stderr)
        text = done.stdout + done.stderr
        self.texts[f"{len(self.texts)}: tidelog {' '.join(words)}"] = text
        return text


@pytest.fixture
def place(tmp_path: Path) -> Path:
    signed(tmp_path, authority(tmp_path), "server")
    key = openssl(
        "pkcs8", "-topk8", "-in", str(tmp_path / "server.key"), "-v2", "aes256",
        "-passout", f"pass:{CANARIES['key-password']}",
    ).decode()  # fmt: skip
    chain = openssl("x509", "-in", str(tmp_path / "server.pem")).decode()
    for name, secret in CANARIES.items():
        (tmp_path / name).write_text(secret + "\n")
    one_line = {name: text.strip().replace("\n", " ") for name, text in (("k", key), ("c", chain))}
    (tmp_path / "server.properties").write_text(
        "listeners=SASL_SSL://127.0.0.1:0\n"
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n"
        f"authorizer.class.name={STANDARD}\n"
        "super.users=User:alice\n"
        f"ssl.keystore.key={one_line['k']}\n"
        f"ssl.keystore.certificate.chain={one_line['c']}\n"
        f"ssl.key.password={CANARIES['key-password']}\n"
        "metrics.listener=127.0.0.1:0\n"
        "metrics.listener.security=tls\n"
        "metrics.auth=bearer\n"
        f"metrics.auth.token={CANARIES['token']}\n"
    )
    return tmp_path


@contextlib.contextmanager
def served(place: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    with (place / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", "serve", "--config", str(place / "server.properties"),
             "--data-dir", str(place / "data"), "--log-level", "debug", "--json"],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment(None),
        )  # fmt: skip
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready, (place / "log").read_text()
            yield process, json.loads(ready)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
            if process.stdout is not None:
                process.stdout.close()


def ask(port: object, place: Path, path: str, authorization: str) -> str:
    trusting = ssl.create_default_context(cafile=str(place / "ca.pem"))
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}{path}", headers={"Authorization": authorization}
    )
    try:
        with urllib.request.urlopen(request, timeout=10, context=trusting) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers}{error.read().decode()}"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_program_says_a_secret(place: Path) -> None:
    said = Outputs()
    data, config = str(place / "data"), str(place / "server.properties")
    password = ("--password-file", str(place / "password"))
    said.command("user", "add", "alice", *password, "--data-dir", data, code=0)
    said.command("config", "check", config, code=0)
    said.command("doctor", "--config", config, "--data-dir", data, code=1)
    said.command("doctor", "--config", config, "--data-dir", data, "--json", code=1)
    said.command("certs", "show", "--config", config, code=0)
    for pair in ("ssl.key.password", "metrics.auth.token", "sasl.jaas.config"):
        argument = f"{pair}={CANARIES['argument']}"
        refused = said.command("serve", "--data-dir", data, "--set", argument, code=5)
        assert pair in refused
        del said.texts[next(reversed(said.texts))]  # its name has the canary, its text is judged:
        assert CANARIES["argument"] not in refused

    with served(place) as (process, ready):
        address = f"127.0.0.1:{ready['port']}"
        common = ("-b", address, "--tls-ca", str(place / "ca.pem"))
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            login = ("--user", "alice", "--sasl-mechanism", mechanism)
            wrong = ("--password-file", str(place / "wrong"))
            said.command("topic", "list", *common, *login, *password, code=0)
            said.command("topic", "list", *common, *login, *wrong, code=1)
        properties = place / "client.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        for jaas in (
            f'{module} username="alice" password="{CANARIES["other"]}";',
            f'{module} username="alice" password="{CANARIES["other"]}',
            f"password={CANARIES['other']}",
        ):
            properties.write_text(
                "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
                f"ssl.truststore.location={place / 'ca.pem'}\nsasl.jaas.config={jaas}\n"
            )
            done = tidelog("topic", "list", "-b", address, "--command-config", str(properties))
            assert done.returncode != 0
            said.texts[f"client.properties {len(said.texts)}"] = done.stdout + done.stderr
        login = ("--login-user", "alice", "--login-password-file", str(place / "password"))
        said.command("user", "list", *common, *login, code=0)
        other = ("--password-file", str(place / "other"))
        said.command("user", "add", "bob", *common, *login, *other, code=0)
        pair = base64.b64encode(f"alice:{CANARIES['password']}".encode()).decode()
        for path in ("/metrics", "/explain?topic=x&at=0", "/healthz"):
            for authorization in (
                f"Bearer {CANARIES['token']}", f"Bearer {CANARIES['bad-token']}", f"Basic {pair}",
            ):  # fmt: skip
                answer = ask(ready["metrics_port"], place, path, authorization)
                said.texts[f"{path} {len(said.texts)}"] = answer
        trusting = ssl.create_default_context(cafile=str(place / "ca.pem"))
        metrics = ("127.0.0.1", int(str(ready["metrics_port"])))
        for broken in (f"Authorization: {CANARIES['bad-token']}\0x", f"X {CANARIES['bad-token']}"):
            with trusting.wrap_socket(
                socket.create_connection(metrics), server_hostname="localhost"
            ) as connection:
                lines = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{broken}\r\n\r\n"
                connection.sendall(lines.encode())
                answer = connection.recv(65_536).decode()
                assert answer.startswith("HTTP/1.1 4"), answer
                said.texts[f"malformed {len(said.texts)}"] = answer
        process.send_signal(signal.SIGHUP)
        time.sleep(1)
        arguments = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert "server.properties" in arguments
        said.texts["process list"] = arguments
    said.texts["log"] = (place / "log").read_text()
    said.texts["journal"] = (place / "data" / "metadata.journal").read_text()
    assert "failed to authenticate with PLAIN" in said.texts["log"]
    assert "failed to authenticate with bearer" in said.texts["log"]
    body = (place / "server.properties").read_text().partition("PRIVATE KEY----- ")[2].split()[0]
    secrets = {*CANARIES.values(), body, pair}
    secrets |= {base64.b64encode(one.encode()).decode().rstrip("=") for one in CANARIES.values()}
    for source, text in said.texts.items():
        for secret in secrets:
            assert secret not in text, source
