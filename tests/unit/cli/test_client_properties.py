"""A client.properties of Kafka's Java clients, as commands understand it."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.broker_options import BrokerOptions, broker_options
from cli.client_properties import ClientProperties, read_client_properties
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from client.core.options import Security

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config="


def read(tmp_path: Path, text: str) -> ClientProperties:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return read_client_properties(str(path))


def test_all_that_counts(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "bootstrap.servers=a:1,b:2\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="ann" password="p\\\\"w;d";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\nssl.keystore.type=pem\n"
        "ssl.keystore.location=/me.pem\nssl.key.password=k\nclient.id=x\nssl.protocol=TLSv1.3\n"
        "ssl.endpoint.identification.algorithm=\n",
    )
    assert found == ClientProperties(
        bootstrap="a:1,b:2",
        tls=True,
        files={"ca_file": "/ca.pem", "certificate_file": "/me.pem"},
        key_password="k",
        check_hostname=False,
        mechanism="PLAIN",
        username="ann",
        password='p"w;d',
    )
    assert 'p"w;d' not in repr(found)


@pytest.mark.parametrize(
    ("options", "password"),
    [
        ('username="ann" password="";', ""),
        ("username=ann password=bare;", "bare"),
        ("username='ann'\tpassword='it''s';", None),
        ("username='ann' password='a\"b' ;", 'a"b'),
        ('password="x" username="ann" tokenauth="true";', "x"),
        ('username="ann" password="x"', None),
        ('username="ann";', None),
        ("", None),
    ],
)
def test_the_line_of_the_login_module(tmp_path: Path, options: str, password: str | None) -> None:
    text = f"{LOGIN}{SCRAM} required {options}\n"
    if password is None:
        with pytest.raises(CommandFailed, match=r"sasl\.jaas\.config: write org\.apache"):
            read(tmp_path, text)
    else:
        found = read(tmp_path, text)
        assert (found.username, found.password) == ("ann", password)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("security.protocol=TLS", "security.protocol: 'TLS': write one of PLAINTEXT, SSL"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "sasl.mechanism: 'GSSAPI': write"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
            "sasl.oauthbearer.token.endpoint.url=https://identity.test/token",
            "sasl.oauthbearer.token.endpoint.url: 'https:.*': write file:///PATH",
        ),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x.Krb5LoginModule "
            'required username="a" password="b";',
            "sasl.jaas.config: write org.apache",
        ),
        ("security.protocol=SSL\nssl.truststore.location=/a.jks", "ssl.truststore.type: .*pkcs12"),
        ("ssl.engine.factory.class=x", "ssl.engine.factory.class: remove it; .* honours only"),
        ("ssl.keystore.password=x", "ssl.keystore.password: remove it"),
        ("a=\\u12", "is no .properties file"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(CommandFailed, match=sentence) as caught:
        read(tmp_path, text)
    assert caught.value.code is ExitCode.USAGE


def test_a_token_is_in_a_file(tmp_path: Path) -> None:
    text = (
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url=file:///a%20b/token\nsasl.jaas.config="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
    )
    found = read(tmp_path, text)
    assert (found.mechanism, found.token_file, found.username) == (
        "OAUTHBEARER", "/a b/token", ""
    )  # fmt: skip


def test_options_count_more_than_the_file(tmp_path: Path) -> None:
    seen: list[BrokerOptions] = []

    @click.command()
    @broker_options
    def show(*, broker: BrokerOptions) -> None:
        seen.append(broker)

    path, secret = tmp_path / "client.properties", tmp_path / "password"
    path.write_text(f'bootstrap.servers=a:1\n{LOGIN}{SCRAM} required username="ann" password="x";')
    secret.write_text("y")
    for words in (
        [],
        ["-b", "c:3", "--user", "bob", "--password-file", str(secret)],
        ["--sasl-mechanism", "PLAIN"],
    ):
        result = CliRunner().invoke(show, ["--command-config", str(path), *words])
        assert result.exit_code == 0, result.output
    ann = Security(mechanism="SCRAM-SHA-256", username="ann", password="x")
    assert seen[0] == {"bootstrap": "a:1", "security": ann}
    assert seen[1] == {
        "bootstrap": "c:3",
        "security": Security(mechanism="SCRAM-SHA-256", username="bob", password="y"),
    }
    assert seen[2]["security"].mechanism == "PLAIN"
