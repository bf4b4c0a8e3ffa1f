"""The settings of subscriptions to clients' metrics (KIP-714): a row for each, and their values.

A subscription is a resource of the type client metrics. Names, defaults and bounds are Apache
Kafka's. That patterns of `match` are regular expressions is checked by `subscriptions`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from config.describe import ConfigSource, DescribedSetting, Synonym, default_level
from config.errors import Problem, nearest
from config.rows import number
from config.values import InvalidValue, Key, Value, ValueType
from values.dataclasses import dataclass

INTERVAL_DEFAULT_MS: Final = 300_000
_INTERVAL_MIN_MS: Final = 100
_INTERVAL_MAX_MS: Final = 3_600_000

SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern of `match` may be about."""

CLIENT_METRICS_KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        key.name: key
        for key in (
            number(
                "interval.ms",
                INTERVAL_DEFAULT_MS,
                "How often clients push, in milliseconds.",
                low=_INTERVAL_MIN_MS,
                high=_INTERVAL_MAX_MS,
                dynamic=True,
            ),
            Key(
                name="match",
                type=ValueType.LIST,
                default=(),
                doc="Which clients push: SELECTOR=PATTERN pairs, all of which have to match; "
                f"selectors are {', '.join(SELECTORS)}. Empty: all clients.",
                dynamic=True,
                check=lambda value: _match_problem(value),
            ),
            Key(
                name="metrics",
                type=ValueType.LIST,
                default=(),
                doc="Which metrics they push: prefixes of names such as "
                "org.apache.kafka.producer., or * for all. Empty: none.",
                dynamic=True,
            ),
        )
    }
)
"""The settings by name, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """The values of one subscription; `match` has the text of a pattern for each selector."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedSetting]:
    """Every setting of a subscription, in the table's order."""
    entries = []
    for key in CLIENT_METRICS_KEYS.values():
        levels = [default_level(key.name, key)]
        if key.name in overrides:
            value, source = overrides[key.name], ConfigSource.CLIENT_METRICS
            levels.insert(0, Synonym(name=key.name, value=value, source=source))
        entries.append(DescribedSetting(key=key, synonyms=tuple(levels)))
    return entries


def check_client_metrics(overrides: Mapping[str, str]) -> list[Problem]:
    """All problems of a subscription; empty when there is none."""
    problems = []
    for name, text in overrides.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            known = f"use one of {', '.join(CLIENT_METRICS_KEYS)}"
            cure = nearest(name, CLIENT_METRICS_KEYS, known)
            problems.append(Problem(name, text, "unknown to client metrics", cure))
            continue
        try:
            key.parse(text)
        except InvalidValue as error:
            problems.append(Problem(name, text, str(error), f"give {key.allowed()}"))
    return problems


def client_metrics_config(overrides: Mapping[str, str]) -> ClientMetricsConfig:
    """The values of a subscription whose settings were checked."""
    values: dict[str, Value] = {
        name: key.parse(overrides[name]) if name in overrides else key.default
        for name, key in CLIENT_METRICS_KEYS.items()
    }
    metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    return ClientMetricsConfig(
        metrics=metrics,
        interval_ms=interval_ms,
        match=dict(_pair(item) for item in match),
    )


def _pair(item: str) -> tuple[str, str]:
    selector, _, pattern = item.partition("=")
    return selector.strip(), pattern.strip()


def _match_problem(value: Value) -> str | None:
    assert isinstance(value, tuple)
    for item in value:
        selector, pattern = _pair(item)
        if selector not in SELECTORS or not pattern:
            return f"{item!r} is no pair of one of {', '.join(SELECTORS)} and a pattern"
    return None
