"""Resolution of a topic's settings: the topic's own, else the broker's, else the default.

The timestamp bounds follow Kafka 3.6 to 3.9 (KIP-937): where `message.timestamp.before.max.ms` or
`message.timestamp.after.max.ms` is not set, `message.timestamp.difference.max.ms` takes its place
if set. The topic's value comes before the broker's. KIP-32's first name,
`max.message.time.difference.ms`, is an alias.
"""

from collections.abc import Mapping
from typing import Any, cast

from config.broker_keys import BROKER_KEYS
from config.errors import ConfigErrors, Problem, nearest
from config.model import BrokerConfig, TopicConfig
from config.topic_keys import TOPIC_ALIASES, TOPIC_KEYS
from config.values import InvalidValue, Key, Value

_BEFORE = "message.timestamp.before.max.ms"
_AFTER = "message.timestamp.after.max.ms"
_DIFFERENCE = "message.timestamp.difference.max.ms"


def canonical_topic_key(name: str) -> str:
    """The current name of the topic setting `name`, which may be an older one."""
    return TOPIC_ALIASES.get(name, name)


def check_topic_overrides(
    overrides: Mapping[str, str], *, is_stored: bool = False
) -> list[Problem]:
    """All problems of a topic's own settings; empty when there is none."""
    problems = []
    parsed: dict[str, Value] = {}
    for given, text in overrides.items():
        key = TOPIC_KEYS.get(canonical_topic_key(given))
        if key is None:
            problems.append(_unknown(given, text))
            continue
        try:
            parsed[key.name] = key.parse(text, is_new=not is_stored)
        except InvalidValue as error:
            problems.append(Problem(given, text, str(error), f"give {key.allowed()}"))
    problems.extend(_check_lags(parsed, overrides))
    return problems


def topic_config(
    overrides: Mapping[str, str], broker: BrokerConfig, *, is_stored: bool = False
) -> TopicConfig:
    """The resolved settings of a topic whose own settings are `overrides`.

    Settings that are stored were accepted before; then the broker's may have changed since.

    Raises:
        ConfigErrors: with every unknown key, bad value and contradiction in `overrides`.
    """
    problems = check_topic_overrides(overrides, is_stored=is_stored)
    if problems:
        raise ConfigErrors(problems)
    own = {canonical_topic_key(name): text for name, text in overrides.items()}
    values: dict[str, Any] = {
        key.field: resolve(key, own, broker)
        for key in TOPIC_KEYS.values()
        if key.field in TopicConfig.__slots__
    }
    for name in (_BEFORE, _AFTER):
        values[TOPIC_KEYS[name].field] = _timestamp_bound(name, own, broker)
    values["cleanup_policy"] = frozenset(cast("tuple[str, ...]", values["cleanup_policy"]))
    config = TopicConfig(**values)
    if not is_stored:
        problems = _check_acks(config)
        if config.remote_storage_enable:
            problems += _check_tiered(config, broker)
        if problems:
            raise ConfigErrors(problems)
    return config


def _check_acks(config: TopicConfig) -> list[Problem]:
    """Also without `remote.storage.enable`: internal topics do not need it."""
    if not config.remote_acks_enable or config.flush_policy != "os":
        return []
    reason = "records are not even on disk when flush.policy=os acknowledges them"
    return [Problem("remote.acks.enable", "true", reason, "give flush.policy=batch")]


def _check_tiered(config: TopicConfig, broker: BrokerConfig) -> list[Problem]:
    problems = []
    if not broker.remote_storage_url:
        reason, cure = "the broker has no object store", "start it with remote.storage.url"
        problems.append(Problem("remote.storage.enable", "true", reason, cure))
    for name, local, whole in (
        ("local.retention.ms", config.local_retention_ms, config.retention_ms),
        ("local.retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        # As in Kafka: the local part is no longer kept than the whole.
        if config.is_deleted_by_retention and whole >= 0 and (local == -1 or local > whole):
            reason = f"more than {name.removeprefix('local.')} = {whole}"
            cure = "give a value no larger than that, or -2"
            problems.append(Problem(name, str(local), reason, cure))
    return problems


def resolve(key: Key, own: Mapping[str, str], broker: BrokerConfig) -> Value:
    """The value of a topic setting: from `own`, else the first broker synonym set, else default."""
    if key.name in own:
        return key.parse(own[key.name])
    inherited = inherit(key, broker)
    return key.default if inherited is None else inherited


def inherit(key: Key, broker: BrokerConfig) -> Value | None:
    """The broker's value for a topic setting, in the topic's unit; None if none is set."""
    for name, factor in key.synonyms:
        text = broker.text_of(name)
        if text is None:
            continue
        value = BROKER_KEYS[name].parse(text)
        if isinstance(value, int) and not isinstance(value, bool):
            return value if value < 0 else value * factor
        return value
    return None


def _timestamp_bound(name: str, own: Mapping[str, str], broker: BrokerConfig) -> int:
    key, difference = TOPIC_KEYS[name], TOPIC_KEYS[_DIFFERENCE]
    for value in (
        key.parse(own[name]) if name in own else None,
        difference.parse(own[_DIFFERENCE]) if _DIFFERENCE in own else None,
        inherit(key, broker),
        inherit(difference, broker),
    ):
        if value is not None:
            return cast("int", value)
    return cast("int", key.default)


def _unknown(given: str, text: str) -> Problem:
    names = [*TOPIC_KEYS, *TOPIC_ALIASES]
    cure = nearest(given, names, "see tidelog config list --topic")
    return Problem(given, text, "no such topic setting", cure)


def _check_lags(parsed: Mapping[str, Value], given: Mapping[str, str]) -> list[Problem]:
    low, high = parsed.get("min.compaction.lag.ms"), parsed.get("max.compaction.lag.ms")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        reason = f"more than max.compaction.lag.ms = {high}"
        cure = "give a value no larger than that, or raise the other"
        return [Problem("min.compaction.lag.ms", given["min.compaction.lag.ms"], reason, cure)]
    return []
