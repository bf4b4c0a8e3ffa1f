"""Loading: the order of sources, the syntax of each, and errors that come all at once."""

import pytest

from cli import broker_options
from config import BrokerConfig, ConfigErrors, load, topic_config, with_dynamic
from config.load import ENVIRONMENT_PREFIX
from config.model import Listener
from config.security.keys import listener_security
from storage.remote.engine import open_store


def problems_of(**sources: object) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(**sources)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


def test_defaults_listen_on_loopback() -> None:
    config = load()
    assert config.listeners == (Listener(name="PLAINTEXT", host="127.0.0.1", port=9092),)
    assert config.data_dir == "./data"
    assert config.node_id == 1


def test_later_sources_win() -> None:
    config = load(
        file_text="num.partitions=2\nnode.id=7\nbroker.rack=a\n",
        file_name="server.properties",
        environment={"TIDELOG_NUM_PARTITIONS": "3", "TIDELOG_BROKER_RACK": "b", "HOME": "/root"},
        command_line={"num.partitions": "4"},
    )
    assert (config.node_id, config.broker_rack, config.num_partitions) == (7, "b", 4)


def test_toml_tables_spell_dotted_names() -> None:
    text = (
        'listeners = ["PLAINTEXT://[::1]:0"]\n[log]\nretention.hours = 2\ncleaner.enable = false\n'
    )
    config = load(file_text=text, file_name="broker.toml")
    assert config.listeners == (Listener(name="PLAINTEXT", host="::1", port=0),)
    assert topic_config({}, config).retention_ms == 7_200_000
    assert config.log_cleaner_enable is False


def test_invalid_toml_is_one_problem() -> None:
    [problem] = problems_of(file_text="a = = b", file_name="broker.toml")
    assert "not valid TOML" in problem


def test_a_lone_backslash_u_in_properties_is_one_problem() -> None:
    [problem] = problems_of(file_text="log.dirs=C:\\users\\tide\n", file_name="server.properties")
    assert problem.startswith("server.properties = ")
    assert "write a backslash as" in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.difference.max.ms", 7),
        ("message.timestamp.before.max.ms", 7),
        ("message.timestamp.after.max.ms", 7),
    ],
)
def test_timestamp_settings_of_the_broker_go_by_their_topic_names_too(
    name: str, value: str | int
) -> None:
    config = topic_config({}, load(command_line={name: str(value)}))
    field = name.replace(".", "_")
    if "difference" in field:
        field = "message_timestamp_before_max_ms"
    assert getattr(config, field) == value


def test_old_names_are_accepted() -> None:
    config = load(command_line={"broker.id": "0", "log.dir": "/var/lib/x"})
    assert (config.node_id, config.data_dir) == (0, "/var/lib/x")


def test_all_problems_of_all_sources_come_at_once() -> None:
    problems = problems_of(
        file_text="log.retention.mss=5\nnode.id=-3\nlog.flush.policy=never\n",
        file_name="server.properties",
        environment={"TIDELOG_NUM_PARTITIONSS": "4"},
        command_line={"retention.ms": "5", "listeners": "foo", "auto.create.topics.enable": "yes"},
    )
    text = "\n".join(problems)
    assert len(problems) == 7
    assert "did you mean log.retention.ms?" in text
    assert "did you mean TIDELOG_NUM_PARTITIONS?" in text
    assert "the broker's default for it is log.retention.ms" in text
    assert "a whole number from 0 to 2147483647" in text
    assert "one of: batch, os" in text
    assert "'foo' is not NAME://HOST:PORT" in text
    assert "true or false" in text
    assert "server.properties" in text


def test_kafka_settings_without_meaning_are_notices() -> None:
    text = "zookeeper.connect=localhost:2181\nnum.io.threads=8\ndefault.replication.factor=3\n"
    config = load(file_text=text, file_name="server.properties")
    assert config.notices == (
        "zookeeper.connect (server.properties) does not apply: there is no ZooKeeper",
        "num.io.threads (server.properties) does not apply: "
        "one event loop serves all; there are no thread pools to size",
        "default.replication.factor = 3 (server.properties) does not apply: "
        "one node holds one replica",
    )


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("listeners", "SSL://h:1", "set ssl.keystore.location to a file"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092", "--insecure"),
        ("ssl.key.password", "open sesame", "write file:/PATH or env:NAME"),
        ("sasl.jaas.config", "x", "remove this one"),
        ("listeners", "A://h:1,A://h:2", "protocol A"),
        ("listeners", "PLAINTEXT://h:70000", "above 65535"),
        ("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2", "stands twice"),
        ("metrics.listener", "nowhere", "is not HOST:PORT"),
        ("listener.security.protocol.map", "A", "is not NAME:PROTOCOL"),
        ("log.dirs", "/a,/b", "several directories"),
        ("log.dirs", "", "empty"),
        ("authorizer.class.name", "x.Y", "StandardAuthorizer"),
        ("group.min.session.timeout.ms", "1800001", "more than group.max.session.timeout.ms"),
        ("log.retention.ms", "0", "use -1 for no limit"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "not a finite number"),
        ("log.segment.bytes", "99999999999", "does not fit 32 bits"),
        ("num.partitions", "many", "not a whole number"),
        ("log.cleanup.policy", "delete,shred", "a list of: delete, compact"),
    ],
)
def test_a_bad_value_is_explained(name: str, text: str, complaint: str) -> None:
    assert complaint in "\n".join(problems_of(command_line={name: text}))


def test_named_listeners_map_to_plaintext() -> None:
    config = load(
        command_line={
            "listeners": "IN://0.0.0.0:9092,OUT://0.0.0.0:9093",
            "insecure.allow": "true",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "advertised.listeners": "IN://broker:9092,OUT://localhost:9093",
        }
    )
    assert [str(listener) for listener in config.advertised_listeners] == [
        "IN://broker:9092",
        "OUT://localhost:9093",
    ]
    assert str(Listener(name="A", host="::1", port=1)) == "A://[::1]:1"


def test_metrics_can_be_switched_off() -> None:
    assert load(command_line={"metrics.listener": ""}).metrics_listener is None


def test_dynamic_settings_win_and_can_be_taken_back() -> None:
    config = load(command_line={"log.retention.ms": "1000"})
    changed = with_dynamic(config, {"log.retention.ms": "2000"})
    assert topic_config({}, changed).retention_ms == 2000
    assert topic_config({}, with_dynamic(changed, {})).retention_ms == 1000


@pytest.mark.parametrize("name", ["node.id", "no.such.key"])
def test_only_dynamic_settings_change_at_run_time(name: str) -> None:
    config: BrokerConfig = load()
    with pytest.raises(ConfigErrors, match=name):
        with_dynamic(config, {name: "5"})


def test_a_bad_dynamic_value_is_refused() -> None:
    with pytest.raises(ConfigErrors, match="whole number"):
        with_dynamic(load(), {"log.retention.ms": "soon"})


def test_a_problem_names_the_alias_that_was_written() -> None:
    with pytest.raises(ConfigErrors) as raised:
        load(command_line={"log.dir": "a,b"})
    assert raised.value.problems[0].key == "log.dir"


OAUTH = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://identity.test/jwks",
    "sasl.oauthbearer.expected.issuer": "https://identity.test",
    "sasl.oauthbearer.expected.audience": "tidelog",
}


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"jwks.endpoint.url": ""}, "OAUTHBEARER has no keys to verify tokens with"),
        (
            {"jwks.endpoint.url": "http://identity.test/jwks"},
            "give https://HOST/PATH or file:///PATH",
        ),
        ({"jwks.endpoint.url": "/etc/jwks.json"}, "give https://HOST/PATH or file:///PATH"),
        ({"expected.issuer": ""}, "tokens of any issuer would be accepted; set sasl.oauthbearer"),
        ({"expected.audience": ""}, "tokens of any audience would be accepted"),
        ({"allowed.algorithms": ""}, "no signature of a token would be accepted"),
        ({"allowed.algorithms": "HS256"}, "give a list of: RS256"),
        ({"allowed.algorithms": "none"}, "give a list of: RS256"),
        ({"clock.skew.seconds": "601"}, "from 0 to 600"),
    ],
)
def test_tokens_need_their_settings(changed: dict[str, str], complaint: str) -> None:
    given = OAUTH | {f"sasl.oauthbearer.{name}": value for name, value in changed.items()}
    assert complaint in "\n".join(problems_of(command_line=given))


def test_tokens_of_anyone_are_for_loopback_and_tests() -> None:
    everyone = {"sasl.oauthbearer.expected.issuer": "", "sasl.oauthbearer.expected.audience": ""}
    load(command_line=OAUTH | everyone | {"insecure.allow": "true"})
    unsecured = {"sasl.oauthbearer.unsecured": "true"}
    load(command_line=OAUTH | everyone | unsecured)
    elsewhere = {"listeners": "SASL_PLAINTEXT://0.0.0.0:9092", "insecure.allow": "true"}
    complaints = "\n".join(problems_of(command_line=OAUTH | unsecured | elsewhere))
    assert "everyone who reaches this address may be any user" in complaints
    everywhere = "\n".join(problems_of(command_line=OAUTH | {"listeners": elsewhere["listeners"]}))
    assert "OAUTHBEARER would send tokens in clear over the network" in everywhere


def test_a_listener_and_a_mechanism_may_have_their_own_settings() -> None:
    scope = "listener.name.Sasl_Plaintext"
    validator = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    own = {
        f"{scope}.oauthbearer.sasl.server.callback.handler.class": validator,
        f"{scope}.gssapi.sasl.jaas.config": "file:/etc/jaas",
        f"{scope}.sasl.oauthbearer.expected.issuer": "https://other.test",
        f"{scope}.sasl.enabled.mechanisms": "OAUTHBEARER,GSSAPI",
    }
    config = load(command_line=OAUTH | own)
    security = listener_security(config, config.listeners[0])
    assert security.oauth is not None
    assert security.kerberos is not None
    assert (security.oauth.issuer, security.oauth.audience) == ("https://other.test", ("tidelog",))
    assert security.kerberos.jaas is not None
    assert security.kerberos.jaas.file == "/etc/jaas"
    other = {f"{scope}.oauthbearer.sasl.server.callback.handler.class": "x.Validator"}
    assert "give one of: org.apache" in "\n".join(problems_of(command_line=OAUTH | other))


@pytest.mark.parametrize("url", ["s3://key:secret/secret@bucket", "az://box/p?sig=secret"])
def test_a_password_in_an_address_is_not_repeated(url: str) -> None:
    """What is refused is logged."""
    for call in (
        lambda: load(command_line={"remote.storage.url": url}),
        lambda: open_store(url, "c"),
    ):
        with pytest.raises(ValueError, match=r"credentials|remote\.storage\.url") as caught:
            call()
        assert "secret" not in str(caught.value)


def test_the_variables_of_commands_are_no_settings() -> None:
    """docs/security.md has them exported in the shell in which a broker may be started."""
    values = (value for name, value in vars(broker_options).items() if name.endswith("_VARIABLE"))
    given = {value for value in values if value.startswith(ENVIRONMENT_PREFIX)}
    assert given >= {"TIDELOG_COMMAND_CONFIG", "TIDELOG_PROFILE", "TIDELOG_USER"}
    assert load(environment=dict.fromkeys(given, "x")) == load()
