"""Configuration: text and mappings in, frozen values out.

Reads no file, environment or clock itself. `load` builds a `BrokerConfig`, `topic_config` a
`TopicConfig`; the settings themselves are the tables `broker_keys`, `topic_keys`, `security.keys`
and `group`. Values that settings take from elsewhere are found by `value_providers`, with a reader
of files that is an argument.
"""

from config.errors import ConfigErrors, Problem
from config.group import check_group_overrides
from config.load import given_settings, is_secret, load, shown_value, with_dynamic
from config.model import BrokerConfig, Listener, Setting, TopicConfig
from config.reload import plan_reload
from config.topic import check_topic_overrides, topic_config
from config.workers import with_ports, worker_config

__all__ = [
    "BrokerConfig",
    "ConfigErrors",
    "Listener",
    "Problem",
    "Setting",
    "TopicConfig",
    "check_group_overrides",
    "check_topic_overrides",
    "given_settings",
    "is_secret",
    "load",
    "plan_reload",
    "shown_value",
    "topic_config",
    "with_dynamic",
    "with_ports",
    "worker_config",
]
