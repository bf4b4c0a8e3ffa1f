"""From text and mappings to a `BrokerConfig`; pure: the caller reads files and the environment.

Order, later wins: defaults < file < environment < command line < settings changed at run time. All
problems of all sources are raised together. A file is a Kafka server.properties or TOML,
distinguished by its name. In the environment `TIDELOG_LOG_RETENTION_MS` stands for
`log.retention.ms`.
"""

import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, cast

from config.broker_keys import BROKER_ALIASES, BROKER_KEYS
from config.errors import ConfigErrors, Problem, nearest
from config.group import NAMES_IN_BROKER, broker_group_problems
from config.listeners import parse_address, parse_listeners, parse_protocol_map
from config.model import BrokerConfig, Setting
from config.not_applicable.ranges import range_of
from config.not_applicable.reasons import (
    NOT_APPLICABLE,
    REFUSED_PREFIXES,
    reason_not_applicable,
)
from config.security.keys import (
    STORE_KEYS,
    is_store_key,
    of_one_listener,
    scoped_key,
)
from config.security.problems import (
    metrics_port_problems,
    security_notices,
    security_problems,
)
from config.store_lease import store_problems
from config.topic_keys import TOPIC_KEYS
from config.value_providers import (
    PROVIDERS,
    Providers,
    ReadFile,
    ReferenceUnusable,
    declared_providers,
)
from config.values import HIDDEN, InvalidValue, Key, Secret, Value, ValueType
from config.workers import worker_problems

ENVIRONMENT_PREFIX = "TIDELOG_"

_NO_SETTINGS = frozenset(
    {
        *("TIDELOG_USER", "TIDELOG_PASSWORD_FILE", "TIDELOG_TOKEN_FILE"),
        *("TIDELOG_COMMAND_CONFIG", "TIDELOG_PROFILE"),
        *("TIDELOG_BOOTSTRAP_USER", "TIDELOG_BOOTSTRAP_USER_FILE"),
    }
)
"""Variables of clients, which a broker beside them ignores, and of `cli.server.first_users`."""

_REFERRED_IS_INVALID: Final = "what it refers to is no valid value"
"""Why a value of a provider is refused: the parser's own words might show the value."""

_SPECIAL = ("log.dirs", "listeners", "advertised.listeners", "listener.security.protocol.map")


def load(
    *,
    file_text: str | None = None,
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, str] | None = None,
    read_file: ReadFile | None = None,
) -> BrokerConfig:
    """The broker's configuration from all sources.

    Args:
        file_text: contents of a .properties or .toml file; None when there is none.
        file_name: its name, which decides the syntax and appears in messages.
        environment: the process environment; names without the prefix `TIDELOG_` are ignored.
        command_line: settings given as KEY=VALUE, already split.
        read_file: reads the files that settings refer to; without it they may refer to none.

    Raises:
        ConfigErrors: all problems of all sources, at once.
    """
    problems: list[Problem] = []
    notices: list[str] = []
    secrets: dict[str, Secret] = {}
    given = _read_sources(file_text, file_name, environment or {}, command_line or {}, problems)
    providers, wrong = _providers_in(given, environment or {}, read_file)
    problems += wrong
    settings: dict[str, Setting] = {}
    for name, setting in given:
        if not name.startswith(f"{PROVIDERS}."):
            _accept(name, setting, settings, secrets, providers, problems, notices)
    notices += _replication_notices(settings)
    config = _build(settings, secrets, {}, providers, problems, notices)
    if config is not None:
        problems += [*security_problems(config), *metrics_port_problems(config)]
        problems += [*worker_problems(config), *store_problems(config)]
    if problems or config is None:
        raise ConfigErrors(problems)
    return replace(config, notices=(*config.notices, *security_notices(config)))


def given_settings(
    *,
    file_text: str | None = None,
    file_name: str = "",
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, str] | None = None,
    read_file: ReadFile | None = None,
) -> dict[str, Setting]:
    """What the sources say, by name: of several, the one that counts. Arguments as for `load`.

    No value is examined: `load` does that, and reports what cannot be read here.
    """
    problems: list[Problem] = []
    given = _read_sources(file_text, file_name, environment or {}, command_line or {}, problems)
    providers, _ = _providers_in(given, environment or {}, read_file)
    settings: dict[str, Setting] = {}
    for name, setting in given:
        if not name.startswith(f"{PROVIDERS}."):
            _accept(name, setting, settings, {}, providers, problems, [])
    return settings


def _read_sources(
    file_text: str | None,
    file_name: str,
    environment: Mapping[str, str],
    command_line: Mapping[str, str],
    problems: list[Problem],
) -> list[tuple[str, Setting]]:
    """The settings of all sources as they are written; later ones win."""
    given: list[tuple[str, Setting]] = []
    if file_text is not None:
        given += _read_file(file_text, file_name, problems)
    given += _read_environment(environment, problems)
    for name, text in command_line.items():
        given.append((name, Setting(text=text, origin="command line")))
    return given


def _providers_in(
    given: Iterable[tuple[str, Setting]],
    environment: Mapping[str, str],
    read_file: ReadFile | None,
) -> tuple[Providers, list[Problem]]:
    of_providers = {name: setting.text for name, setting in given if name.startswith(PROVIDERS)}
    return declared_providers(of_providers, environment, read_file)


def with_dynamic(
    config: BrokerConfig, dynamic: Mapping[str, str], *, fresh: Collection[str] = ()
) -> BrokerConfig:
    """`config` with the settings changed at run time replaced by `dynamic`.

    They win over all others. Kafka settings that do not apply here are kept without effect; of the
    names in `fresh`, which are being changed, the values are held to Kafka's ranges.

    Raises:
        ConfigErrors: an unknown key, one that cannot change at run time, or a bad value.
    """
    problems: list[Problem] = []
    in_force: dict[str, Setting] = {}
    for name, text in dynamic.items():
        setting = Setting(text=text, origin="set at run time", written_as=name)
        key = BROKER_KEYS.get(name) or of_one_listener(config, name)
        if key is None and reason_not_applicable(name) is not None:
            in_force[name] = setting  # as in a file: without effect, and not an error
            if name in fresh:
                _check_unused(name, setting, config.providers, problems)
            continue
        if key is None or not key.dynamic:
            reason = (
                "no such broker setting" if key is None else "cannot change while the broker runs"
            )
            cure = "see tidelog config list" if key is None else "set it at start"
            problems.append(Problem(name, shown_value(name, text), reason, cure))
        elif name in STORE_KEYS:
            reason = "can change while the broker runs for one listener only"
            cure = f"write listener.name.NAME.{name}"
            problems.append(Problem(name, shown_value(name, text), reason, cure))
        elif resolved := _resolved(name, setting, config.providers, problems):
            in_force[name] = resolved
            if name not in BROKER_KEYS:
                _parse(key, resolved, problems)
    built = _build(
        config.settings,
        config.secrets,
        in_force,
        config.providers,
        problems,
        list(config.notices),
    )
    if built is not None and any(map(is_store_key, dynamic)):
        problems += [*security_problems(built), *metrics_port_problems(built)]
    if problems or built is None:
        raise ConfigErrors(problems)
    return built


def is_secret(name: str) -> bool:
    """Whether the value of the broker setting `name` is a secret."""
    key = BROKER_KEYS.get(name) or scoped_key(name.lower())
    return key is not None and key.type is ValueType.PASSWORD


def shown_value(name: str, text: str) -> str:
    """`text` as it may be shown if it is the value of the broker setting `name`.

    The value of a setting that this program does not know may be a secret too: its name may be a
    misspelled one.
    """
    known = BROKER_KEYS.keys() | BROKER_ALIASES.keys() | TOPIC_KEYS.keys()
    is_unknown = name not in known and scoped_key(name.lower()) is None
    return HIDDEN if is_secret(name) or is_unknown else text


def _read_file(text: str, name: str, problems: list[Problem]) -> Iterable[tuple[str, Setting]]:
    if name.endswith(".toml"):
        import tomllib  # as with `javaproperties` below: a start without a file is faster

        try:
            pairs = list(_flatten("", tomllib.loads(text)))
        except tomllib.TOMLDecodeError as error:
            problems.append(Problem(name, "", f"not valid TOML: {error}", "correct the file"))
            return []
        return [(key, Setting(text=value, origin=name)) for key, value in pairs]
    import javaproperties

    try:
        found = javaproperties.load(io.StringIO(text))
    except javaproperties.InvalidUEscapeError as error:
        reason = "no four hexadecimal digits after \\u"
        cure = "write a backslash as \\\\ in a .properties file"
        problems.append(Problem(name, error.escape, reason, cure))
        return []
    return [(key, Setting(text=value, origin=name)) for key, value in found.items()]


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(f"{dotted}.", value)
        elif isinstance(value, bool):
            yield dotted, "true" if value else "false"
        elif isinstance(value, list):
            yield dotted, ",".join(str(item) for item in value)
        else:
            yield dotted, str(value)


def _read_environment(
    environment: Mapping[str, str], problems: list[Problem]
) -> Iterable[tuple[str, Setting]]:
    known = {
        _environment_name(name): name for name in (*BROKER_KEYS, *BROKER_ALIASES, *NOT_APPLICABLE)
    }
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NO_SETTINGS:
            continue
        name = known.get(variable)
        if name is None:
            cure = nearest(variable, known, "unset it, or see tidelog config list")
            problems.append(Problem(variable, HIDDEN, "no such setting", cure, "environment"))
        else:
            yield name, Setting(text=text, origin=f"environment {variable}")


def _environment_name(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def _accept(
    given: str,
    setting: Setting,
    settings: dict[str, Setting],
    secrets: dict[str, Secret],
    providers: Providers,
    problems: list[Problem],
    notices: list[str],
) -> None:
    name = BROKER_ALIASES.get(given, given)
    reason = reason_not_applicable(name)
    key = BROKER_KEYS.get(name) or scoped_key(name.lower())
    if key is not None and name not in BROKER_KEYS:
        name = name.lower()
    if key is not None:
        resolved = _resolved(given, setting, providers, problems)
        if resolved is None:
            return
        setting = resolved
    if key is not None and key.type is ValueType.PASSWORD:
        secrets[name] = _secret(setting, providers)
        settings[name] = replace(setting, text=HIDDEN, reference="")
        if setting.origin == "command line" and secrets[name].is_literal:
            why, remedy = "every user of this machine sees it", "write file:/PATH or env:NAME"
            problems.append(Problem(given, HIDDEN, why, remedy, setting.origin))
    elif key is not None and name not in BROKER_KEYS:
        settings[name] = setting
        _parse(key, replace(setting, written_as=given), problems)
    elif name in BROKER_KEYS:
        settings[name] = replace(setting, written_as="" if given == name else given)
    elif reason is not None:
        _check_unused(name, replace(setting, written_as=given), providers, problems)
        notices.append(f"{given} ({setting.origin}) does not apply: {reason}")
    elif cure := next(
        (cure for prefix, cure in REFUSED_PREFIXES.items() if name.startswith(prefix)), None
    ):
        # The value may be a secret of a setting that this program does not know.
        problems.append(Problem(given, HIDDEN, "not served", cure, setting.origin))
    else:
        value, remedy = shown_value(given, setting.text), _cure_for_unknown(given)
        problems.append(Problem(given, value, "no such setting", remedy, setting.origin))


def _resolved(
    name: str, setting: Setting, providers: Providers, problems: list[Problem]
) -> Setting | None:
    """`setting` with the values of its references; None after a problem with one."""
    try:
        text = providers.resolve(setting.text)
    except ReferenceUnusable as error:
        shown = shown_value(name, setting.text)
        problems.append(Problem(name, shown, str(error), error.cure, setting.origin, True))
        return None
    if text == setting.text:
        return setting
    return replace(setting, text=text, reference=setting.text)


def _check_unused(
    name: str, setting: Setting, providers: Providers, problems: list[Problem]
) -> None:
    """Refuse the value of a setting without meaning here where Kafka refuses it."""
    key = range_of(name)
    if key is None:
        return
    resolved = _resolved(setting.written_as or name, setting, providers, problems)
    if resolved is not None:
        _parse(key, resolved, problems)


def _secret(setting: Setting, providers: Providers) -> Secret:
    if not setting.reference:
        return Secret(setting.text)
    return Secret(setting.reference, setting.text, providers.files_in(setting.reference))


def _cure_for_unknown(name: str) -> str:
    if name in TOPIC_KEYS and not TOPIC_KEYS[name].synonyms:
        return "it is a topic setting that has no default in the broker"
    if name in TOPIC_KEYS:
        return (
            f"it is a topic setting; the broker's default for it is "
            f"{TOPIC_KEYS[name].synonyms[0][0]}"
        )
    return nearest(name, [*BROKER_KEYS, *BROKER_ALIASES], "see tidelog config list")


def _build(
    settings: Mapping[str, Setting],
    secrets: Mapping[str, Secret],
    dynamic: Mapping[str, Setting],
    providers: Providers,
    problems: list[Problem],
    notices: list[str],
) -> BrokerConfig | None:
    values: dict[str, Value] = {}
    for key in BROKER_KEYS.values():
        setting = dynamic.get(key.name) or settings.get(key.name)
        is_new = key.name not in dynamic  # those were taken before
        values[key.name] = (
            key.default if setting is None else _parse(key, setting, problems, is_new=is_new)
        )
    fields: dict[str, Any] = {
        key.field: values[key.name]
        for key in BROKER_KEYS.values()
        if key.field in BrokerConfig.__slots__ and key.name not in _SPECIAL
    }
    fields |= _addresses(values, settings, problems)
    _check_together(values, {**settings, **dynamic}, problems)
    if problems:
        return None
    hidden = {name: setting for name, setting in dynamic.items() if is_secret(name)}
    texts = {name: setting.text for name, setting in dynamic.items()}
    references = {name: one.reference for name, one in dynamic.items() if one.reference}
    return BrokerConfig(
        **fields,
        group_numbers=MappingProxyType(
            {name: cast("int", values[name]) for name in NAMES_IN_BROKER}
        ),
        secrets=MappingProxyType(dict(secrets)),
        dynamic_secrets=MappingProxyType(
            {name: _secret(setting, providers) for name, setting in hidden.items()}
        ),
        settings=MappingProxyType(dict(settings)),
        dynamic=MappingProxyType({**texts, **dict.fromkeys(hidden, HIDDEN)}),
        dynamic_references=MappingProxyType(
            {name: text for name, text in references.items() if name not in hidden}
        ),
        providers=providers,
        notices=tuple(notices),
    )


def _parse(key: Key, setting: Setting, problems: list[Problem], *, is_new: bool = True) -> Value:
    try:
        return key.parse(setting.text, is_new=is_new)
    except InvalidValue as error:
        problems.append(_invalid(key.name, setting, error, f"give {key.allowed()}"))
        return key.default


def _invalid(name: str, setting: Setting, error: InvalidValue, cure: str) -> Problem:
    reason = _REFERRED_IS_INVALID if setting.reference else str(error)
    is_reference = bool(setting.reference)
    given = setting.written_as or name
    return Problem(given, setting.shown, reason, cure, setting.origin, is_reference)


def _addresses(
    values: Mapping[str, Value], settings: Mapping[str, Setting], problems: list[Problem]
) -> dict[str, Any]:
    def attempt(name: str, parse: Any, *more: Any) -> Any:
        try:
            return parse(values[name], *more)
        except InvalidValue as error:
            cure = f"see tidelog config list {name}"
            if "listeners" in name:
                cure = "write NAME://HOST:PORT"
            setting = settings.get(name) or Setting(text=str(values[name]), origin="")
            problems.append(_invalid(name, setting, error, cure))
            return ()

    protocols = attempt("listener.security.protocol.map", parse_protocol_map)
    listeners = attempt("listeners", parse_listeners, dict(protocols))
    metrics_protocol = "SSL" if values["metrics.listener.security"] == "tls" else "PLAINTEXT"
    return {
        "listeners": listeners,
        "advertised_listeners": attempt("advertised.listeners", parse_listeners, dict(protocols)),
        "metrics_listener": attempt("metrics.listener", parse_address, metrics_protocol),
        "data_dir": attempt("log.dirs", _one_directory),
    }


def _one_directory(value: Value) -> str:
    text = str(value).strip()
    if not text:
        raise InvalidValue("empty")
    if "," in text:
        raise InvalidValue("several directories; Tidelog keeps all partitions in one")
    return text


def _check_together(
    values: Mapping[str, Value], settings: Mapping[str, Setting], problems: list[Problem]
) -> None:
    def shown(name: str) -> str:
        return settings[name].shown if name in settings else str(values[name])

    if not (values["max.connections.per.ip"] or values["max.connections.per.ip.overrides"]):
        cure = "raise it, or name addresses in max.connections.per.ip.overrides"
        problems.append(Problem("max.connections.per.ip", "0", "admits no one", cure))
    problems += broker_group_problems(values, shown)


def _replication_notices(settings: Mapping[str, Setting]) -> list[str]:
    """The notices for an operator whose file requests replicas."""
    return [
        f"{name} = {setting.shown} ({setting.origin}) does not apply: one node holds one replica"
        for name, setting in settings.items()
        if name.endswith("replication.factor") and setting.text.strip() != "1"
    ]
