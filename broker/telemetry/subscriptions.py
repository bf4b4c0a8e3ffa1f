"""Subscriptions to clients' metrics: their settings, and what a client is asked to push.

Owns the documents in the metadata journal and the patterns. A client is asked for the metrics of
all subscriptions that match it, at the smallest of their intervals.

Source: KIP-714; Kafka `ClientMetricsManager`, `ClientMetricsConfigs`.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.telemetry.otlp import ALL
from broker.telemetry.settings import (
    INTERVAL_DEFAULT_MS,
    ClientMetricsConfig,
    check_client_metrics,
    client_metrics_config,
)
from protocol.patterns import Pattern, PatternRefused, compile_pattern

if TYPE_CHECKING:
    from storage.directory.data_dir import DataDir

logger = logging.getLogger("tidelog.broker.telemetry.subscriptions")

KIND: Final = "client-metrics"


class Wanted(NamedTuple):
    """What one client is asked to push: prefixes of names in order, and how often."""

    metrics: tuple[str, ...] = ()
    interval_ms: int = INTERVAL_DEFAULT_MS


class _Subscription(NamedTuple):
    config: ClientMetricsConfig
    patterns: Mapping[str, Pattern]

    def matches(self, facts: Mapping[str, str]) -> bool:
        return all(pattern.matches(facts[selector]) for selector, pattern in self.patterns.items())


class Subscriptions:
    """All subscriptions. `revision` grows with each change."""

    def __init__(self, documents: "DataDir") -> None:
        """Take those that are stored; one that is not valid any more has no effect."""
        self.revision = 0
        self.overrides: dict[str, dict[str, str]] = {}
        self._documents = documents
        self._parsed: dict[str, _Subscription] = {}
        for name, document in documents.documents(KIND).items():
            if isinstance(document, dict):
                self._take(name, {key: str(text) for key, text in document.items()})

    def replace(self, name: str, overrides: Mapping[str, str]) -> None:
        """Give a subscription these settings, which were checked; without any it is deleted.

        Raises:
            StorageFailed: they could not be stored; nothing was changed.
        """
        self._documents.put_documents(KIND, {name: dict(overrides) or None})
        self._take(name, dict(overrides))

    def _take(self, name: str, overrides: dict[str, str]) -> None:
        self.revision += 1
        if not overrides:
            self.overrides.pop(name, None)
            self._parsed.pop(name, None)
            return
        self.overrides[name] = overrides
        self._parsed.pop(name, None)
        problems = check_client_metrics(overrides)
        problem = str(problems[0]) if problems else pattern_problem(overrides)
        if problem is not None:
            logger.warning("the subscription %s to client metrics has no effect: %s", name, problem)
            return
        config = client_metrics_config(overrides)
        patterns = {key: compile_pattern(text) for key, text in config.match.items()}
        self._parsed[name] = _Subscription(config, patterns)

    def wanted(self, facts: Mapping[str, str]) -> Wanted:
        """What a client with these facts, by selector, is asked to push."""
        found = [each.config for each in self._parsed.values() if each.matches(facts)]
        if not found:
            return Wanted()
        metrics = {prefix for config in found for prefix in config.metrics}
        return Wanted(
            metrics=(ALL,) if ALL in metrics else tuple(sorted(metrics)),
            interval_ms=min(config.interval_ms for config in found),
        )


def pattern_problem(overrides: Mapping[str, str]) -> str | None:
    """Why a pattern of settings that are valid otherwise is none; None when all are."""
    for selector, text in client_metrics_config(overrides).match.items():
        try:
            compile_pattern(text)
        except PatternRefused as error:
            return f"match: the pattern {text!r} of {selector} is refused: {error}."
    return None
