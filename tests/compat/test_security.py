"""Clients that log in to Tidelog: every mechanism over TLS, certificates, and what is refused.

Each client writes and reads as a user who may, is refused with a wrong password, and learns that a
right is missing. Apache Kafka's tools give users and rights.
"""

import re
import ssl
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cli.security.offline_users import add_user
from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.matrix import CLIENTS, CORE, Client
from tests.support.certificates import authority, der_of, signed
from tests.support.identity_provider import (
    AUDIENCE,
    ISSUER,
    SECRET,
    IdentityProvider,
    SigningKey,
    identity_provider,
    jwks,
)
from tests.support.kafka_peer import free_ports, tool_command

TOKENS = "OAUTHBEARER"
ADMIN, ANN, EVE, DEVICE = "admin", "ann", "eve", "device"
PASSWORD = "pass=w,rd"
COUNT = 20
BASE = int(time.time() * 1000)
TOPIC, GROUP = "t-secured", "g-"
PATIENCE_OF_JAVA_S = 30
"""Java says at once that it is refused, but on a busy machine its first connection takes long."""

QUIET = ("kcat 1.7", "kafka-python 2.0.2")
"""Clients that say only that they gave up.

kcat names no reason. kafka-python 2.0.2 asks for metadata again and again when its only topic is
refused.
"""

QUIET_ABOUT_RIGHTS = (*QUIET, "confluent-kafka 1.0.0", "confluent-kafka 0.11.6")
"""Clients that do not say that a topic may not be written.

Old librdkafka keeps the record and asks for metadata again until the record's time-out.
"""

WITHOUT_CODES = (
    *(*QUIET, "kafka-python 1.4.7", "aiokafka 0.7.2", "confluent-kafka 1.0.0"),
    *("confluent-kafka 0.11.6", "Java 0.11.0.3", "Java 0.10.2.2", "Java 0.10.0.1"),
)
"""Clients that log in with SaslHandshake v0, where the broker refuses by closing."""

WITHOUT_TOPIC_REASON = ("kafka-python 1.4.7", "no-kafka 3.4.4", "segmentio kafka-go 0.4.51")
"""Clients to which a topic that they may not describe is an unknown one."""

WITHOUT_REASON = ("aiokafka", "kafkajs", "kafka-python", "@platformatic")
"""Refused tokens take a second round (RFC 7628), which these clients do not expect."""

_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ALL = (*_PASSWORDS, TOKENS)
LOGINS: Mapping[str, tuple[str, ...]] = {
    "kcat 1.7": _PASSWORDS,
    "confluent-kafka newest": _ALL,
    "confluent-kafka 1.9.2": _ALL,
    "confluent-kafka 1.0.0": _PASSWORDS,
    "confluent-kafka 0.11.6": _PASSWORDS,
    "kafka-python 3": _ALL,
    "kafka-python 2.0.2": _ALL,
    "kafka-python 1.4.7": ("PLAIN", TOKENS),
    "aiokafka newest": _ALL,
    "aiokafka 0.7.2": _ALL,
    "kafkajs 2.2.4": _ALL,
    "@platformatic/kafka 1.35": _ALL,
    "no-kafka 3.4.4": (),
    "Java 4.3.1": _ALL,
    "Java 3.9.1": _ALL,
    "Java 2.8.2": _ALL,
    "Java 1.1.1": _PASSWORDS,
    "Java 0.11.0.3": _PASSWORDS,
    "Java 0.10.2.2": _PASSWORDS,
    "Java 0.10.0.1": ("PLAIN",),
    "Java 0.9.0.1": (),
    "franz-go 1.22": _ALL,
    "sarama 1.61": _ALL,
    "segmentio kafka-go 0.4.51": _PASSWORDS,
}
"""The mechanisms that each client has, beside certificates; GSSAPI is asked in `tests/kerberos`.

Debian's kcat has no libcurl to ask a provider for tokens: it has unsigned ones alone, which a test
of its own sends. TLS is younger than Java and Scala 0.8.2.2.
"""

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Secured:
    """A running broker with rights, and how to reach it."""

    sasl: str
    tls: str
    place: Path
    key: SigningKey

    @property
    def authorities(self) -> Path:
        return self.place / "ca.pem"

    def login(self, mechanism: str, user: str = ANN, password: str = PASSWORD) -> dict[str, object]:
        """Arguments of a client program."""
        return {
            "bootstrap": self.sasl, "security": "SASL_SSL", "ca": self.authorities,
            "mechanism": mechanism, "user": user, "password": password,
        }  # fmt: skip

    def token(self, token: str) -> dict[str, object]:
        """Arguments of a client program with a token."""
        path = self.place / harness.unique("token")
        path.write_text(token)
        return {
            "bootstrap": self.sasl, "security": "SASL_SSL", "ca": self.authorities,
            "mechanism": TOKENS, "token": path, "properties": self.java_properties(path),
        }  # fmt: skip

    def java_properties(self, token: Path | None, **more: str) -> Path:
        """What `token` is to a Java program, whose handler reads the file that JAAS names."""
        path = self.place / harness.unique("properties")
        package = "org.apache.kafka.common.security.oauthbearer"
        settings = {
            "sasl.mechanism": TOKENS,
            "sasl.jaas.config": f'{package}.OAuthBearerLoginModule required file="{token}";',
            "sasl.login.callback.handler.class": "JavaToken",
            **more,
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def certificate(self, name: str) -> dict[str, object]:
        """Arguments of a client program with a certificate and no password."""
        pem = self.place / f"{name}.pem"
        return {"bootstrap": self.tls, "security": "SSL", "ca": self.authorities, "cert": pem}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place = tmp_path_factory.mktemp("secured")
    signer = authority(place)
    for name in ("server", DEVICE, EVE):
        signed(place, signer, name)
    data, (tls_port,) = place / "data", free_ports(1)
    key, keys = SigningKey(algorithm="RS256"), place / "jwks.json"
    keys.write_bytes(jwks(key))
    for user in (ADMIN, ANN, EVE):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            add_user(str(data), user, PASSWORD, mechanism, 4096)
    settings = {
        "listeners": f"SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:{tls_port}",
        "sasl.enabled.mechanisms": ",".join(_ALL),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "ssl.keystore.location": str(place / "server.pem"),
        "ssl.truststore.location": str(place / "ca.pem"),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }
    with TidelogProcess(data, settings=settings) as broker:
        made = Secured(broker.bootstrap, f"127.0.0.1:{tls_port}", place, key)
        _prepare(made)
        yield made


def _prepare(made: Secured) -> None:
    """The topic, and the rights of those who may."""
    login: dict[str, str | int | float | bool] = {
        "bootstrap.servers": made.sasl, "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(made.authorities), "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": ADMIN, "sasl.password": PASSWORD, "log_level": 2,
    }  # fmt: skip
    topic = NewTopic(TOPIC, num_partitions=1, replication_factor=1)
    client = AdminClient(login)
    client.create_topics([topic])[TOPIC].result(20)
    password = made.place / "password"
    password.write_text(PASSWORD)
    for user in (ANN, DEVICE):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tidelog", "acl", "add", "-b", made.sasl),
                *("--tls-ca", str(made.authorities), "--user", user, "--produce", TOPIC),
                *("--consume", TOPIC, "--group", f"{GROUP}*"),
                *("--login-user", ADMIN, "--login-password-file", str(password)),
            ],
            capture_output=True, text=True, check=False, timeout=60,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def every_client(
    *mechanisms: str, without: Collection[str] = (), only: Collection[str] = tuple(LOGINS)
) -> pytest.MarkDecorator:
    """A test with each client that has the mechanisms, once for each; without any, once."""
    named = {client.name: client for client in CLIENTS}
    return pytest.mark.parametrize(
        ("client", "mechanism"),
        [
            pytest.param(
                named[name],
                mechanism,
                id=f"{name} {mechanism}".strip(),
                marks=[pytest.mark.core] if name in CORE else [],
            )
            for mechanism in mechanisms or ("",)
            for name, has in LOGINS.items()
            if name in only and name not in without and (not mechanism or mechanism in has)
        ],
    )


def test_every_client_of_the_table_is_here() -> None:
    assert {client.name for client in CLIENTS} == {*LOGINS, "Java and Scala 0.8.2.2"}


def write_and_read(client: Client, arguments: dict[str, object]) -> None:
    produced = harness.run(
        client, "produce", topic=TOPIC, count=COUNT, partitions=1, base=BASE, **arguments
    )
    assert produced == {"acked": COUNT}
    consumed = harness.run(
        client, "consume", topic=TOPIC, group=harness.unique(GROUP), count=COUNT, **arguments
    )
    keys = [record[3] for record in consumed["records"]]
    assert keys[:COUNT] == [f"key-{number}" for number in range(COUNT)]


def complaint_of(client: Client, arguments: dict[str, object]) -> str:
    """What a client says that cannot write."""
    with pytest.raises(harness.ClientFailed) as caught:
        harness.run(
            client,
            "produce",
            topic=TOPIC,
            count=1,
            partitions=1,
            base=1_000,
            timeout=PATIENCE_OF_JAVA_S if client.name.startswith("Java") else 8,
            **arguments,
        )
    return str(caught.value)


@every_client(*_PASSWORDS)
def test_a_user_writes_and_reads(client: Client, mechanism: str, secured: Secured) -> None:
    write_and_read(client, secured.login(mechanism))


@every_client(TOKENS)
def test_a_token_writes_and_reads(client: Client, mechanism: str, secured: Secured) -> None:
    write_and_read(client, secured.token(secured.key.token(sub=ANN, exp=time.time() + 300)))


@every_client(TOKENS, without=QUIET)
def test_a_bad_token_is_reported(client: Client, mechanism: str, secured: Secured) -> None:
    stranger = SigningKey(algorithm="RS256")
    complaint = complaint_of(client, secured.token(stranger.token(sub=ANN)))
    if not client.name.startswith(WITHOUT_REASON):
        said = "authenticat|invalid_token|oauth response"
        assert re.search(said, complaint, re.IGNORECASE), complaint


@pytest.fixture
def provider(secured: Secured) -> Iterator[IdentityProvider]:
    with identity_provider() as made:
        made.keys = [secured.key]
        yield made


@pytest.mark.core
def test_librdkafka_gets_its_token_from_the_identity_provider(
    secured: Secured, provider: IdentityProvider
) -> None:
    (client,) = (client for client in CLIENTS if client.name == "confluent-kafka newest")
    login = secured.login(TOKENS, ANN, SECRET)
    write_and_read(client, {**login, "method": "oidc", "token_url": provider.token_url})


@pytest.mark.core
def test_kcat_logs_in_with_an_unsigned_token(secured: Secured, tmp_path: Path) -> None:
    """The user is the principal of the token, and no other one may write."""
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": TOKENS,
        "sasl.oauthbearer.unsecured": "true",
        "ssl.keystore.location": str(secured.place / "server.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ANN}",
        "auto.create.topics.enable": "true",
    }
    (client,) = (client for client in CLIENTS if client.name == "kcat 1.7")
    with TidelogProcess(tmp_path / "data", settings=settings) as broker:
        login = {
            "bootstrap": broker.bootstrap, "security": "SASL_SSL", "ca": secured.authorities,
            "mechanism": TOKENS,
        }  # fmt: skip
        write_and_read(client, {**login, "principal": ANN})
        complaint_of(client, {**login, "principal": EVE})


@pytest.mark.jvm
@pytest.mark.core
def test_java_gets_its_token_from_the_identity_provider(
    secured: Secured, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.token_url}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    (client,) = (client for client in CLIENTS if client.name == "Java 4.3.1")
    properties = secured.java_properties(
        None,
        **{
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required "
            f'clientId="{ANN}" clientSecret="{SECRET}";',
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        },
    )
    write_and_read(client, {**secured.login(TOKENS), "properties": properties})


@every_client()
def test_a_certificate_writes_and_reads(client: Client, mechanism: str, secured: Secured) -> None:
    write_and_read(client, secured.certificate(DEVICE))


@every_client("PLAIN", "SCRAM-SHA-512", without=WITHOUT_CODES)
def test_a_wrong_password_is_reported(client: Client, mechanism: str, secured: Secured) -> None:
    complaint = complaint_of(client, secured.login(mechanism, password="not-the-one"))
    assert re.search("authentication.?failed", complaint, re.IGNORECASE), complaint


@every_client("PLAIN", "SCRAM-SHA-512", only=WITHOUT_CODES)
def test_a_quiet_client_is_refused_too(client: Client, mechanism: str, secured: Secured) -> None:
    complaint_of(client, secured.login(mechanism, password="not-the-one"))
    complaint_of(client, secured.login(mechanism, EVE))


def says_that_it_may_not(client: Client, arguments: dict[str, object]) -> None:
    complaint = complaint_of(client, arguments)
    said = "authoriz" if client.name not in WITHOUT_TOPIC_REASON else "unknown|does not exist|time"
    assert re.search(said, complaint, re.IGNORECASE), complaint


@every_client("SCRAM-SHA-512", without=QUIET_ABOUT_RIGHTS)
def test_a_missing_right_is_reported(client: Client, mechanism: str, secured: Secured) -> None:
    says_that_it_may_not(client, secured.login(mechanism, EVE))


@every_client(without=QUIET_ABOUT_RIGHTS)
def test_a_missing_right_of_a_certificate_is_reported(
    client: Client, mechanism: str, secured: Secured
) -> None:
    says_that_it_may_not(client, secured.certificate(EVE))


@pytest.mark.jvm
class TestToolsOfKafka:
    @pytest.fixture
    def properties(self, secured: Secured, tmp_path: Path) -> Path:
        path = tmp_path / "admin.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={secured.authorities}\n"
            f'sasl.jaas.config={module} required username="{ADMIN}" password="{PASSWORD}";\n'
        )
        return path

    def run(self, name: str, secured: Secured, properties: Path, *words: str) -> str:
        command = tool_command(
            name, "--bootstrap-server", secured.sasl, "--command-config", str(properties),
            *words, heap="128m",
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Exception" not in done.stdout + done.stderr
        return done.stdout

    def test_users(self, secured: Secured, properties: Path) -> None:
        configs, name = "kafka.admin.ConfigCommand", harness.unique("user")
        user = ("--entity-type", "users", "--entity-name", name)
        add = "SCRAM-SHA-512=[iterations=8192,password=fresh-pass]"
        self.run(configs, secured, properties, "--alter", *user, "--add-config", add)
        shown = self.run(configs, secured, properties, "--describe", *user)
        assert "SCRAM-SHA-512=iterations=8192" in shown
        assert "fresh-pass" not in shown
        confluent = next(client for client in CLIENTS if client.name == "confluent-kafka newest")
        login = secured.login("SCRAM-SHA-512", name, "fresh-pass")
        assert "uthoriz" in complaint_of(confluent, login), "logged in, without rights"
        self.run(configs, secured, properties, "--alter", *user, "--delete-config", "SCRAM-SHA-512")
        assert "uthenticat" in complaint_of(confluent, login)

    def test_rights(self, secured: Secured, properties: Path) -> None:
        acls, principal = "org.apache.kafka.tools.AclCommand", f"User:{harness.unique('u')}"
        allow = ("--allow-principal", principal, "--producer", "--topic", "t-")
        prefixed = ("--resource-pattern-type", "prefixed")
        added = self.run(acls, secured, properties, "--add", *allow, *prefixed)
        assert f"principal={principal}, host=*, operation=WRITE, permissionType=ALLOW" in added
        listed = self.run(acls, secured, properties, "--list", "--principal", principal)
        assert "name=t-, patternType=PREFIXED" in listed
        self.run(acls, secured, properties, "--remove", "--force", *allow, *prefixed)
        assert "WRITE" not in self.run(
            acls, secured, properties, "--list", "--principal", principal
        )

    def test_a_key_store(self, secured: Secured, properties: Path) -> None:
        """A store that cannot be used is refused with the reason, and changes nothing."""
        configs = "kafka.admin.ConfigCommand"
        broker = ("--entity-type", "brokers", "--entity-name", "1")
        name = "listener.name.sasl_ssl.ssl.keystore.location"
        renewed = signed(secured.place, secured.authorities, "renewed", subject="/CN=server")

        def certificate() -> bytes:
            port = int(secured.sasl.rpartition(":")[2])
            pem = ssl.get_server_certificate(("127.0.0.1", port))
            return ssl.PEM_cert_to_DER_cert(pem)

        former = certificate()
        with pytest.raises(AssertionError, match=r"ssl\.keystore\.location = /no/such\.pem: No"):
            self.run(
                configs, secured, properties, "--alter", *broker,
                "--add-config", f"{name}=/no/such.pem",
            )  # fmt: skip
        assert certificate() == former
        self.run(
            configs, secured, properties, "--alter", *broker, "--add-config", f"{name}={renewed}"
        )
        assert certificate() == der_of(renewed)
        shown = self.run(configs, secured, properties, "--describe", *broker)
        assert f"{name}={renewed}" in shown
        self.run(configs, secured, properties, "--alter", *broker, "--delete-config", name)
        assert certificate() == former
