"""The settings of listeners' security: what is refused together, what has no effect, reloads."""

import pytest

from config import BrokerConfig, ConfigErrors, load, plan_reload, shown_value, with_dynamic
from config.listeners import parse_limits
from config.security.cipher_suites import SUITES_OF_TLS_1_2, SUITES_OF_TLS_1_3
from config.security.keys import TlsSettings, listener_security

SSL = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": "/server.pem"}
OWN = "listener.name.ssl."
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AES_128 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


def loaded(**more: str) -> BrokerConfig:
    text = "".join(f"{name}={value}\n" for name, value in {**SSL, **more}.items())
    return load(file_text=text, file_name="server.properties")


def tls(config: BrokerConfig) -> TlsSettings:
    found = listener_security(config, config.listeners[0]).tls
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ({}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.protocol": "TLS"}, ("TLSv1.2", "TLSv1.3")),
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1.3",)),
        ({"ssl.cipher.suites": AES_128}, ("TLSv1.2",)),
        ({"ssl.cipher.suites": ",".join(SUITES_OF_TLS_1_3)}, ("TLSv1.3",)),
        ({"ssl.cipher.suites": ",".join((AES_128, *SUITES_OF_TLS_1_3))}, ("TLSv1.2", "TLSv1.3")),
    ],
)
def test_the_versions_that_are_served(settings: dict[str, str], versions: tuple[str, ...]) -> None:
    assert tls(loaded(**settings)).versions == versions


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "give one of: (empty), org.apache.kafka"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "give a list of: TLS_AES_256"),
        ({"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256"}, "give a list of: TLS_AES_256"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"},
            "not TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256; they cannot be chosen one "
            "by one",
        ),
        (
            {"ssl.cipher.suites": AES_128, "ssl.enabled.protocols": "TLSv1.3"},
            "no TLS version is left to serve: ssl.enabled.protocols = TLSv1.3, ssl.protocol = "
            f"TLSv1.3, ssl.cipher.suites = {AES_128}",
        ),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "no TLS version is left"),
        ({"ssl.protocol": "TLSv1.1"}, "TLSv1.2, TLSv1.3, TLS"),
        ({"ssl.enabled.protocols": ""}, "no TLS version is left"),
    ],
)
def test_suites_and_versions_that_do_not_fit(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        loaded(**settings)
    assert complaint in str(caught.value)


def test_every_suite_is_forward_secret() -> None:
    assert all(name.startswith("TLS_ECDHE_") for name in SUITES_OF_TLS_1_2)
    assert len(SUITES_OF_TLS_1_2) == 14


def test_what_has_no_effect_is_reported() -> None:
    both = {
        "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:1",
        "ssl.client.auth": "required",
        "ssl.truststore.location": "/ca.pem",
    }
    (notice,) = loaded(**both).notices
    assert notice == (
        "ssl.client.auth = required does not count on listener SASL_SSL, where users log in, as "
        "in Kafka; set listener.name.sasl_ssl.ssl.client.auth to ask for certificates there"
    )
    assert not loaded(**both, **{"listener.name.sasl_ssl.ssl.client.auth": "none"}).notices
    (notice,) = loaded(**{"ssl.crl.location": "/crl.pem"}).notices
    assert notice.startswith("ssl.crl.location = /crl.pem does nothing on listener SSL")


class TestSettingsAtRunTime:
    def test_a_store_of_one_listener(self) -> None:
        config = loaded(**{f"{OWN}ssl.keystore.location": "/own.pem"})
        assert tls(config).keystore_location == "/own.pem"
        changed = with_dynamic(config, {f"{OWN}ssl.keystore.location": "/other.pem"})
        assert tls(changed).keystore_location == "/other.pem"
        assert tls(with_dynamic(changed, {})).keystore_location == "/own.pem"

    def test_secrets_are_kept_apart_and_empty_ones_take_given_ones_out_of_force(self) -> None:
        config = loaded(**{"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "of-the-file"})
        changed = with_dynamic(config, {f"{OWN}ssl.keystore.password": "hunter2"})
        assert "hunter2" not in repr(changed)
        assert "of-the-file" not in repr(changed)
        password = tls(changed).keystore_password
        assert password is not None
        assert password.reveal(lambda path: "", {}) == "hunter2"
        empty = {
            f"{OWN}ssl.keystore.password": "",
            f"{OWN}ssl.keystore.type": "PEM",
        }
        assert tls(with_dynamic(changed, empty)).keystore_password is None

    @pytest.mark.parametrize(
        "name",
        [
            f"{OWN}ssl.keystore.password",
            "listener.name.nope.ssl.key.password",
            "listener.name.nope.ssl.unknown.password",
            "ssl.keystore.key",
            "sasl.unknown",
            "listener.name.ssl.plain.sasl.jaas.config",
        ],
    )
    def test_a_refusal_shows_no_secret(self, name: str) -> None:
        assert shown_value(name, "hunter2") == "[hidden]"
        with pytest.raises(ConfigErrors) as caught:
            with_dynamic(loaded(), {name: "hunter2"})
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "name",
        [
            "delegation.token.secret.kye",
            "metrics.auth.tokn",
            "ssl.keystore.pass",
            "config.providers.vault.param.token",
            "my.password",
        ],
    )
    def test_a_misspelled_name_shows_no_secret(self, name: str) -> None:
        for words in ({"command_line": {name: "hunter2"}}, {"file_text": f"{name}=hunter2"}):
            with pytest.raises(ConfigErrors, match=name) as caught:
                load(file_name="f.properties", **words)
            assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize("name", ["SSL_KEY_PASSWRD", "BOOTSTRAP_USERS", "METRICS_AUTH_TOKN"])
    def test_a_misspelled_variable_shows_no_secret(self, name: str) -> None:
        with pytest.raises(ConfigErrors, match=name) as caught:
            load(environment={f"TIDELOG_{name}": "admin:hunter2"})
        assert "hunter2" not in str(caught.value)

    def test_other_values_are_shown(self) -> None:
        assert shown_value("log.retention.ms", "5") == "5"
        assert shown_value(f"{OWN}ssl.keystore.location", "/a") == "/a"

    def test_the_metrics_port_is_a_listener_too(self) -> None:
        config = loaded(**{"metrics.listener.security": "tls"})
        name = "listener.name.metrics.ssl.keystore.location"
        assert with_dynamic(config, {name: "/other.pem"}).text_of(name) == "/other.pem"


def test_a_reload_takes_stores_and_secrets_of_the_file() -> None:
    given = loaded(**{"ssl.key.password": "one"})
    fresh = loaded(**{"ssl.key.password": "two"})
    plan = plan_reload(given, given, fresh)
    assert plan.changed == ("ssl.key.password",)
    assert tls(plan.config).key_password == tls(fresh).key_password != tls(given).key_password
    assert plan_reload(given, given, given).changed == ()
    moved = loaded(**{"ssl.keystore.location": "/moved.pem", "ssl.cipher.suites": AES_128})
    plan = plan_reload(given, given, moved)
    assert set(plan.changed) == {"ssl.keystore.location", "ssl.key.password"}
    assert plan.needs_restart == ("ssl.cipher.suites",)
    assert tls(plan.config).keystore_location == "/moved.pem"
    assert tls(plan.config).key_password is None


def test_limits_of_single_addresses() -> None:
    items = ("10.0.0.7:5", "[2001:DB8:0::1]:6", "2001:db8::2:7", "::ffff:10.0.0.8:8")
    assert parse_limits(items) == {
        "10.0.0.7": 5,
        "2001:db8::1": 6,
        "2001:db8::2": 7,
        "10.0.0.8": 8,
    }


@pytest.mark.parametrize("users", ["admin", "User:", "User:a;:b", "User:a;b"])
def test_super_users_have_a_type_and_a_name(users: str) -> None:
    with pytest.raises(ConfigErrors, match="not all of it is TYPE:NAME; give principals"):
        loaded(**{"super.users": users})


def test_a_super_user_may_be_the_name_of_a_certificate() -> None:
    users = " User:CN=ops,O=Example ; User:a:b;"
    assert loaded(**{"super.users": users}).super_users == users.strip()


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.sll.ssl.client.auth",
        "listener.name.other.sasl.enabled.mechanisms",
        "listener.name.other.plain.sasl.jaas.config",
    ],
)
def test_a_setting_for_a_listener_that_there_is_not_is_refused(name: str) -> None:
    """Else a slip would leave a listener as open as before, without a word."""
    values = {"client": "required", "enabled": "PLAIN", "jaas": "env:SECRET"}
    (text,) = [text for word, text in values.items() if f".{word}" in name]
    with pytest.raises(ConfigErrors) as raised:
        loaded(**{name: text})
    assert f"{name} is for a listener that there is not" in str(raised.value)
    assert "write listener.name.ssl, or remove it" in str(raised.value)


@pytest.mark.parametrize("name", ["ssl", "SSL", "metrics", "controller"])
def test_a_setting_for_a_listener_that_there_is_is_kept(name: str) -> None:
    loaded(**{f"listener.name.{name}.ssl.client.auth": "none"})


def test_super_users_are_separated_by_semicolons() -> None:
    with pytest.raises(ConfigErrors, match="separate users by ;"):
        loaded(**{"super.users": "User:a, User:b"})
    loaded(**{"super.users": "User:CN=a,OU=b;User:c", "authorizer.class.name": STANDARD})


def test_super_users_without_an_authorizer_are_noted() -> None:
    (notice,) = loaded(**{"super.users": "User:a"}).notices
    assert "does nothing without authorizer.class.name" in notice
    assert loaded(**{"super.users": "User:a", "authorizer.class.name": STANDARD}).notices == ()
