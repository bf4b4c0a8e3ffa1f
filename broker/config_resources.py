"""Configuration resources: what DescribeConfigs, AlterConfigs and IncrementalAlterConfigs act on.

| type | name                          | what it is                                          |
|------|-------------------------------|-----------------------------------------------------|
| 2    | topic                         | a topic's own settings over the broker's            |
| 4    | this broker's id              | the broker's settings, the dynamic ones changeable  |
| 4    | empty                         | the cluster-wide default: the same on one node      |

Others that Kafka knows (loggers, client metrics, groups) are refused as INVALID_REQUEST.

Owns the finding of a resource, its current overrides and the replacement of them.  The settings
themselves, their types and texts are `config`'s.

Source: KIP-133, KIP-226, KIP-339; Kafka `ConfigHelper`, `ConfigAdminManager`.
"""

from collections.abc import Mapping
from enum import IntEnum

from broker.context import Context
from broker.errors import InvalidConfig, InvalidRequest, ResourceNotFound, UnknownTopicOrPartition
from broker.topics import check_topic_name
from config import ConfigErrors, check_topic_overrides, with_dynamic
from config.broker_keys import BROKER_KEYS
from config.describe import ConfigSource, Entry, describe_broker, describe_topic
from config.topic import canonical_topic_key, resolve
from config.topic_keys import TOPIC_KEYS
from config.values import Key, ValueType, format_value


class ResourceType(IntEnum):
    """The resource types that are served."""

    TOPIC = 2
    BROKER = 4


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource:
    """One topic or this broker, as something that has settings."""

    def __init__(self, context: Context, resource_type: int, name: str) -> None:
        """Find it.

        Raises:
            InvalidRequest: the type is not served.
            UnknownTopicOrPartition: there is no such topic.
            ResourceNotFound: the broker id is not ours.
        """
        self._context = context
        self._name = name
        if resource_type == ResourceType.TOPIC:
            check_topic_name(name)
            if context.topics.find(name) is None:
                raise UnknownTopicOrPartition(name)
        elif resource_type == ResourceType.BROKER:
            if name not in ("", str(context.endpoint.node_id)):
                raise ResourceNotFound(
                    f"Broker {name!r} is not here; this is broker {context.endpoint.node_id}."
                )
        else:
            raise InvalidRequest(
                f"Configuration resources of type {resource_type} are not served; "
                "use 2 (topic) or 4 (broker)."
            )
        self.is_topic = resource_type == ResourceType.TOPIC

    def describe(self) -> list[Entry]:
        """Every setting with its levels; for the cluster default only what was set at run time."""
        broker_config = self._context.topics.broker_config
        if self.is_topic:
            topic = self._context.topics.find(self._name)
            assert topic is not None, "found at construction, and nothing has waited since"
            return describe_topic(topic.overrides, broker_config)
        entries = describe_broker(broker_config)
        if self._name:
            return entries
        return [entry for entry in entries if entry.source is ConfigSource.DYNAMIC_BROKER]

    def is_changeable(self, key: Key) -> bool:
        """Whether the protocol may change `key` of this resource."""
        return self.is_topic or key.dynamic

    def overrides(self) -> dict[str, str]:
        """The resource's own settings, under their present names."""
        if self.is_topic:
            topic = self._context.topics.find(self._name)
            assert topic is not None, "found at construction, and nothing has waited since"
            return {canonical_topic_key(name): text for name, text in topic.overrides.items()}
        return dict(self._context.topics.broker_config.dynamic)

    def canonical(self, name: str) -> str:
        """The present name of a setting that may be given by an older one."""
        return canonical_topic_key(name) if self.is_topic else name

    def check(self, overrides: Mapping[str, str]) -> None:
        """Accept `overrides` as the resource's own settings.

        Raises:
            ConfigErrors: with every problem.
        """
        if self.is_topic:
            problems = check_topic_overrides(overrides)
            if problems:
                raise ConfigErrors(problems)
        else:
            with_dynamic(self._context.config, overrides)

    async def replace(self, overrides: Mapping[str, str]) -> None:
        """Make `overrides` the resource's own settings, durably.

        Raises:
            ConfigErrors: with every problem; nothing was changed.
        """
        if self.is_topic:
            await self._context.topics.set_overrides(self._name, overrides)
        else:
            await self._context.topics.set_broker_overrides(overrides)

    def apply(
        self, overrides: dict[str, str], name: str, operation: int, value: str | None
    ) -> None:
        """Change one setting in `overrides`.

        Raises:
            InvalidConfig: a value is missing, or append and subtract meet a setting without items.
            InvalidRequest: the operation is unknown.
        """
        name = self.canonical(name)
        if operation == Operation.DELETE:
            overrides.pop(name, None)
            return
        if value is None:
            raise InvalidConfig(f"{name} has no value; delete it to get the default.")
        if operation == Operation.SET:
            overrides[name] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            overrides[name] = self._edit_list(overrides, name, operation, value)
        else:
            raise InvalidRequest(f"Config operation {operation} is unknown; use 0, 1, 2 or 3.")

    def _edit_list(
        self, overrides: Mapping[str, str], name: str, operation: int, value: str
    ) -> str:
        key = (TOPIC_KEYS if self.is_topic else BROKER_KEYS).get(name)
        if key is None or key.type is not ValueType.LIST:
            raise InvalidConfig(
                f"{name} is not a list; append and subtract are for lists, use set."
            )
        if name in overrides:
            current = overrides[name]
        elif self.is_topic:
            current = format_value(resolve(key, {}, self._context.topics.broker_config))
        else:
            current = self._context.topics.broker_config.text_of(name) or format_value(key.default)
        items = [item.strip() for item in current.split(",") if item.strip()]
        given = [item.strip() for item in value.split(",") if item.strip()]
        if operation == Operation.APPEND:
            items += [item for item in given if item not in items]
        else:
            items = [item for item in items if item not in given]
        return ",".join(items)
