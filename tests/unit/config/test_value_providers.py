"""References to providers: what they resolve to, what is refused, and where no value is shown."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.security.secret_files import read_secret_file
from config import BrokerConfig, ConfigErrors, load, plan_reload, with_dynamic
from config.describe import describe_broker
from config.values import InvalidValue, Secret

CLASS = "org.apache.kafka.common.config.provider."
ALL = {"config.providers": "file,directory,env"}
CANARY = "canary-4711"
KEY_PASSWORD = "ssl.key.password"


def loaded(
    settings: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> BrokerConfig:
    lines = [f"{name}={text}" for name, text in settings.items()]
    return load(
        file_text="\n".join(lines),
        file_name="server.properties",
        environment=environment,
        read_file=read_secret_file,
    )


def revealed(secret: Secret) -> str:
    return secret.reveal(read_secret_file, {})


def problem(settings: Mapping[str, str], environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigErrors) as caught:
        loaded(settings, environment)
    return str(caught.value)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "s.properties").write_text(f"key={CANARY}\nparts=7\nodd=file:/etc/passwd\n")
    (tmp_path / "password").write_text(f"{CANARY}\n")
    return tmp_path


def test_each_provider_gives_values_to_settings_of_any_type(secrets: Path) -> None:
    config = loaded(
        ALL
        | {
            "num.partitions": f"${{file:{secrets}/s.properties:parts}}",
            KEY_PASSWORD: f"${{directory:{secrets}:password}}",
            "listener.name.plaintext.ssl.key.password": f"${{file:{secrets}/s.properties:key}}",
            "super.users": "User:${env:ADMIN};User:b",
            "listener.name.plaintext.max.connections": "${env:MANY}",
        },
        {"ADMIN": "ann", "MANY": "12"},
    )
    assert config.num_partitions == 7
    assert revealed(config.secrets[KEY_PASSWORD]) == CANARY
    assert revealed(config.secrets[f"listener.name.plaintext.{KEY_PASSWORD}"]) == CANARY
    assert config.super_users == "User:ann;User:b"
    assert config.text_of("listener.name.plaintext.max.connections") == "12"


def test_kafkas_classes_stand_for_the_kinds_under_any_name(secrets: Path) -> None:
    config = loaded(
        {
            "config.providers": "vault",
            "config.providers.vault.class": f"{CLASS}FileConfigProvider",
            "num.partitions": f"${{vault:{secrets}/s.properties:parts}}",
        }
    )
    assert config.num_partitions == 7


def test_a_value_is_no_reference_itself_and_names_no_file(secrets: Path) -> None:
    config = loaded(ALL | {KEY_PASSWORD: f"${{file:{secrets}/s.properties:odd}}"})
    secret = config.secrets[KEY_PASSWORD]
    assert revealed(secret) == "file:/etc/passwd"
    assert (secret.file, secret.is_literal) == ("", False)
    assert secret.provided_by == (f"{secrets}/s.properties",)
    nested = loaded(ALL | {"super.users": "${env:A}"}, {"A": "User:${env:B}", "B": "b"})
    assert nested.super_users == "User:${env:B}"


@pytest.mark.parametrize(
    ("low", "high"), [("${env:N}", "6000"), ("77777", "${env:N}"), ("${env:M}", "${env:N}")]
)
def test_settings_that_do_not_fit_together_show_their_references(low: str, high: str) -> None:
    names = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")
    settings = {"config.providers": "env", names[0]: low, names[1]: high}
    shown = problem(settings, {"N": "12345", "M": "54321"})
    assert f"{names[0]} = {low!r}" in shown
    assert f"more than {names[1]} = {high};" in shown


def test_a_reference_counts_on_the_command_line_where_a_literal_secret_does_not() -> None:
    words = {"config.providers": "env", KEY_PASSWORD: "${env:PASSWORD}"}
    config = load(command_line=words, environment={"PASSWORD": CANARY})
    assert revealed(config.secrets[KEY_PASSWORD]) == CANARY
    with pytest.raises(ConfigErrors, match="every user of this machine sees it"):
        load(command_line={KEY_PASSWORD: CANARY})


@pytest.mark.parametrize(
    ("text", "reason", "cure"),
    [
        ("${env:GONE}", "the environment has no variable GONE", "set it"),
        ("${env:/x:GONE}", "names a path", "write ${env:NAME}"),
        ("${file:{d}/s.properties:gone}", "has no key gone", "add the line gone=VALUE"),
        ("${file:{d}/gone:key}", "cannot read", "correct the path"),
        ("${file:{d}:key}", "cannot read", "correct the path"),
        ("${file:key}", "lacks a path or a key", "write ${file:PATH:KEY}"),
        ("${file:/dev/zero:key}", "cannot read /dev/zero: not a regular file", "correct the path"),
        ("${directory:{d}:../password}", "is no name of a file", "of the directory itself"),
        ("${directory:{d}:gone}", "cannot read", "correct the path"),
        ("${dir:{d}:password}", "there is no provider 'dir'", "config.providers=dir"),
    ],
)
def test_what_cannot_be_resolved_is_refused_with_its_setting(
    secrets: Path, text: str, reason: str, cure: str
) -> None:
    for name in ("super.users", KEY_PASSWORD):
        shown = problem(ALL | {name: text.replace("{d}", str(secrets))})
        assert shown.startswith(name) or f" {name}" in shown
        assert reason in shown
        assert cure in shown
        assert CANARY not in shown


def test_an_unknown_word_before_a_colon_stays_as_in_kafka() -> None:
    assert loaded(ALL | {"super.users": "User:${x:y}"}).super_users == "User:${x:y}"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"config.providers": "vault"}, "config.providers.vault.class"),
        ({"config.providers": "v", "config.providers.v.class": "com.x.Y"}, "no class is loaded"),
        ({"config.providers.file.class": f"{CLASS}FileConfigProvider"}, "no provider has this"),
        (
            {"config.providers": "file", "config.providers.file.param.allowed.path": "/etc"},
            "no provider has this setting",
        ),
        (
            {"config.providers": "file", "config.providers.file.param.allowed.paths": "etc"},
            "etc is not absolute",
        ),
        (
            {"config.providers": "env", "config.providers.env.param.allowlist.pattern": "("},
            "not a regular expression",
        ),
    ],
)
def test_a_provider_that_does_not_exist_is_refused(settings: dict[str, str], reason: str) -> None:
    assert reason in problem(settings)


def test_value_providers_read_only_what_they_are_allowed_to(secrets: Path) -> None:
    (secrets / "in").mkdir()
    (secrets / "in" / "a").write_text("5")
    (secrets / "inner").write_text("parts=5")
    bounds = ALL | {
        "config.providers.directory.param.allowed.paths": f"{secrets}/in, /run",
        "config.providers.file.param.allowed.paths": f"{secrets}/in",
        "config.providers.env.param.allowlist.pattern": "TIDE_.*",
    }
    environment = {"TIDE_A": "5", "A_TIDE_B": "5"}
    for text in (f"${{directory:{secrets}/in:a}}", "${env:TIDE_A}"):
        assert loaded(bounds | {"num.partitions": text}, environment).num_partitions == 5
    for text in (
        f"${{directory:{secrets}/in/..:password}}",
        f"${{file:{secrets}/inner:parts}}",
        "${env:A_TIDE_B}",
    ):
        assert "allow" in problem(bounds | {"num.partitions": text}, environment)


def test_no_value_of_a_provider_is_shown(secrets: Path) -> None:
    reference = f"${{file:{secrets}/s.properties:key}}"
    typed = ("num.partitions", "super.users", "ssl.client.auth")
    for name in (*typed, "listeners", "listener.name.x.ssl.protocol"):
        shown = problem(ALL | {name: reference})
        assert reference in shown
        assert CANARY not in shown
    config = loaded(ALL | {"audit.log.file": reference, KEY_PASSWORD: reference})
    config = with_dynamic(config, {"listener.name.plaintext.ssl.truststore.location": reference})
    for entry in describe_broker(config):
        assert CANARY not in "".join(level.value for level in entry.visible_synonyms)
    described = {entry.key.name: entry.value for entry in describe_broker(config)}
    assert described["audit.log.file"] == reference
    assert described["listener.name.plaintext.ssl.truststore.location"] == reference
    assert described[KEY_PASSWORD] == "[hidden]"
    assert CANARY not in repr(config.secrets) + repr(config.providers)
    assert config.redacted(f"cannot read {CANARY}") == f"cannot read {reference}"


def test_settings_made_at_run_time_may_refer_and_are_read_again(secrets: Path) -> None:
    reference = f"${{file:{secrets}/s.properties:parts}}"
    given = loaded(ALL)
    config = with_dynamic(given, {"max.connections": reference})
    assert config.max_connections == 7
    assert config.shown_text_of("max.connections") == reference
    (secrets / "s.properties").write_text("parts=8")
    assert with_dynamic(config, {"max.connections": reference}).max_connections == 8
    (secrets / "s.properties").write_text("")
    with pytest.raises(ConfigErrors, match=r"max\.connections.*has no key parts"):
        with_dynamic(config, {"max.connections": reference})


def test_a_reload_notices_a_changed_value_of_a_provider(secrets: Path) -> None:
    reference = f"${{directory:{secrets}:password}}"
    settings = ALL | {
        "log.retention.ms": "${env:KEPT}",
        f"listener.name.plaintext.{KEY_PASSWORD}": reference,
    }
    given = loaded(settings, {"KEPT": "5"})
    assert plan_reload(given, given, loaded(settings, {"KEPT": "5"})).changed == ()
    (secrets / "password").write_text("another")
    plan = plan_reload(given, given, loaded(settings, {"KEPT": "6"}))
    assert set(plan.changed) == {"log.retention.ms", f"listener.name.plaintext.{KEY_PASSWORD}"}
    secret = with_dynamic(plan.config, {}).secrets[f"listener.name.plaintext.{KEY_PASSWORD}"]
    assert revealed(secret) == "another"


def test_without_a_reader_of_files_none_is_read() -> None:
    with pytest.raises(ConfigErrors, match="no files are read here"):
        load(command_line={"config.providers": "file", "super.users": "${file:/x:y}"})


def test_a_secret_of_the_environment_still_needs_its_variable() -> None:
    with pytest.raises(InvalidValue):
        revealed(Secret("env:GONE"))
