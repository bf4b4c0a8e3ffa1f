"""Configuration resources: the objects of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

| type | name                | what it is                                                    |
|------|---------------------|---------------------------------------------------------------|
| 2    | topic               | a topic's own settings over the broker's                      |
| 4    | this broker's id    | the broker's settings, the dynamic ones changeable            |
| 4    | empty               | the cluster-wide default: the same on one node                |
| 8    | this broker's id    | loggers and their levels, changed until the next start        |
| 16   | any                 | a subscription to clients' metrics                            |
| 32   | group               | a group's own timings over the broker's, member or not        |

Differs from Kafka:

* a broker setting that does not exist is refused; Kafka keeps it without effect. Settings without
  meaning here are kept without effect, even those that Kafka cannot change;
* no level makes the audit log lose lines: that is up to the configuration and its files;
* min.insync.replicas of the broker can be changed; in Kafka, since 4.1, only for the whole cluster;
* a resource named twice in AlterConfigs gets both changes; Kafka sends no answer.

Owns the look-up of a resource, its current overrides and their replacement. `act_on` and `change`
handle one resource of a request. The settings themselves, their types and texts belong to `config`.

Source: KIP-133, KIP-226, KIP-339, KIP-412, KIP-714, KIP-848; Kafka `ConfigHelper`,
`ConfigAdminManager`, `LoggingController`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from broker.errors import (
    InvalidConfig,
    InvalidRequest,
    ReadOnlyWindow,
    UnknownTopicOrPartition,
)
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.security.audit import AUDIT_LOGGER
from broker.security.tls.contexts import TlsUnusable
from broker.telemetry.settings import (
    CLIENT_METRICS_KEYS,
    check_client_metrics,
    describe_client_metrics,
)
from broker.telemetry.subscriptions import pattern_problem
from broker.topics.registry import check_topic_name
from broker.topics.windows import WindowTopic
from config import (
    BrokerConfig,
    ConfigErrors,
    check_group_overrides,
    check_topic_overrides,
    with_dynamic,
)
from config.broker_keys import BROKER_KEYS
from config.describe import (
    ConfigSource,
    DescribedSetting,
    Synonym,
    describe_broker,
    describe_group,
)
from config.group import GROUP_KEYS
from config.security.keys import is_store_key
from config.topic import canonical_topic_key, resolve
from config.topic_keys import TOPIC_KEYS
from config.values import Key, ValueType, format_value
from protocol.api import alter_configs, describe_configs, incremental_alter_configs
from protocol.error_codes import ErrorCode
from protocol.registry import struct_encoder
from protocol.structs import ConfigText


class ResourceType(IntEnum):
    """The supported resource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """An operation of IncrementalAlterConfigs on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource:
    """Something that has settings; this base has none, and none can be set."""

    may_be_replaced = True
    """Whether AlterConfigs, which resets the settings it does not name, makes sense."""

    keys: Mapping[str, Key] = MappingProxyType({})
    """The table of its settings, for those that have one."""

    def describe(self) -> list[DescribedSetting]:
        """Every setting with its levels."""
        return []

    def is_default(self, entry: DescribedSetting) -> bool:
        """A value's origin, as DescribeConfigs v0 reports it."""
        return entry.source is ConfigSource.DEFAULT

    def is_changeable(self, key: Key) -> bool:
        """Whether the protocol may change `key` of this resource."""
        return False

    def overrides(self) -> dict[str, str]:
        """The resource's own settings, under their current names."""
        return {}

    def canonical(self, name: str) -> str:
        """The current name of a setting, given by that or an older name."""
        return name

    def check_each_once(self, names: Iterable[str]) -> None:
        """Accept `names` as the settings that one request gives.

        Raises:
            InvalidRequest: a name occurs twice.
        """
        canonical = [self.canonical(name) for name in names]
        if len(set(canonical)) != len(canonical):
            raise InvalidRequest("A setting stands in the request more than once.")

    def check(self, overrides: Mapping[str, str]) -> None:
        """Accept `overrides` as the resource's own settings.

        Raises:
            InvalidConfig: nothing can be set on this resource; says why.
            ConfigErrors: with every problem.
        """

    def replace(self, overrides: Mapping[str, str]) -> None:
        """Make `overrides` the resource's own settings.

        Raises:
            ConfigErrors: with every problem; nothing was changed.
        """

    async def try_and_replace(
        self, overrides: Mapping[str, str], given: Collection[str], *, validate_only: bool
    ) -> None:
        """Check `overrides`, and make them the resource's own settings unless `validate_only`.

        `given` are the names that the request has. Raises what `check` and `replace` raise.
        """
        self.check(overrides)
        if not validate_only:
            self.replace(overrides)

    def current(self, key: Key) -> str:
        """The text of the value in force where no override is set."""
        return format_value(key.default)

    def apply(
        self, overrides: dict[str, str], name: str, operation: int, value: str | None
    ) -> None:
        """Change one setting in `overrides`.

        Raises:
            InvalidConfig: append or subtract on a setting that is not a list.
            InvalidRequest: the operation is unknown.
        """
        name = self.canonical(name)
        if operation == Operation.DELETE:
            overrides.pop(name, None)
            return
        assert value is not None, "complaint_about has refused it"
        if operation == Operation.SET:
            overrides[name] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            overrides[name] = self._edit_list(overrides, name, operation, value)
        else:
            raise InvalidRequest(f"Config operation {operation} is unknown; use 0, 1, 2 or 3.")

    def _edit_list(
        self, overrides: Mapping[str, str], name: str, operation: int, value: str
    ) -> str:
        key = self.keys.get(name)
        if key is None or key.type is not ValueType.LIST:
            raise InvalidConfig(
                f"{name} is not a list; append and subtract are for lists, use set."
            )
        current = overrides[name] if name in overrides else self.current(key)
        items = [item.strip() for item in current.split(",") if item.strip()]
        given = [item.strip() for item in value.split(",") if item.strip()]
        if operation == Operation.APPEND:
            items += [item for item in given if item not in items]
        else:
            items = [item for item in items if item not in given]
        return ",".join(items)


class _Topic(Resource):
    """One topic."""

    keys = TOPIC_KEYS

    def __init__(self, context: Context, name: str) -> None:
        check_topic_name(name)
        topic = context.topics.find(name)
        if topic is None:
            raise UnknownTopicOrPartition(name)
        self._context = context
        self._topic = topic
        # It has the settings of its topic, and no others.
        self._window = topic if isinstance(topic, WindowTopic) else None

    def describe(self) -> list[DescribedSetting]:
        return self._context.topics.describe(self._topic.overrides)

    def is_default(self, entry: DescribedSetting) -> bool:
        return entry.source is not ConfigSource.TOPIC

    def is_changeable(self, key: Key) -> bool:
        return self._window is None

    def overrides(self) -> dict[str, str]:
        return {canonical_topic_key(name): text for name, text in self._topic.overrides.items()}

    def canonical(self, name: str) -> str:
        return canonical_topic_key(name)

    def check(self, overrides: Mapping[str, str]) -> None:
        if self._window is not None:
            raise ReadOnlyWindow(self._window.name, self._window.source.name)
        problems = check_topic_overrides(overrides)
        if problems:
            raise ConfigErrors(problems)

    def replace(self, overrides: Mapping[str, str]) -> None:
        self._context.topics.set_overrides(self._topic.name, overrides)

    def current(self, key: Key) -> str:
        return format_value(resolve(key, {}, self._context.topics.broker_config))


_CLUSTER_WIDE = (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


class _Broker(Resource):
    """This broker, or with no name the cluster-wide default."""

    keys = BROKER_KEYS

    def __init__(self, context: Context, name: str) -> None:
        if name:
            _check_broker(context, name)
        self._context = context
        self._name = name

    def describe(self) -> list[DescribedSetting]:
        entries = describe_broker(self._context.topics.broker_config)
        if self._name:
            return entries
        return [entry for entry in entries if entry.source in _CLUSTER_WIDE]

    def is_changeable(self, key: Key) -> bool:
        return key.dynamic

    def overrides(self) -> dict[str, str]:
        return self._context.topics.broker_overrides

    def check(self, overrides: Mapping[str, str]) -> None:
        self._checked(overrides)

    async def try_and_replace(
        self, overrides: Mapping[str, str], given: Collection[str], *, validate_only: bool
    ) -> None:
        """Also build what key stores among `overrides` ask for, and use it."""
        config = self._checked(overrides)
        of_listeners = [name for name in given if is_store_key(name)]
        if of_listeners and not self._name:
            raise InvalidRequest(
                f"{of_listeners[0]} is of one broker; name this one, "
                f"{self._context.endpoint.node_id}."
            )
        tls = self._context.security.tls
        try:
            async with tls.tried(config, given, is_bound=True) as put_in_force:
                if not validate_only:
                    self.replace(overrides)
                    put_in_force()
        except TlsUnusable as error:
            raise InvalidRequest(config.redacted(str(error))) from error

    def _checked(self, overrides: Mapping[str, str]) -> BrokerConfig:
        """The settings of the broker with `overrides`."""
        before = self.overrides()
        fresh = [name for name, text in overrides.items() if before.get(name) != text]
        try:
            return with_dynamic(self._context.topics.broker_config, overrides, fresh=fresh)
        except ConfigErrors as error:
            raise InvalidRequest(str(error)) from error

    def replace(self, overrides: Mapping[str, str]) -> None:
        self._context.topics.set_broker_overrides(overrides)

    def current(self, key: Key) -> str:
        config = self._context.topics.broker_config
        return config.shown_text_of(key.name) or format_value(key.default)


_ROOT: Final = "root"
_TRACE: Final = 5
_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "FATAL": logging.CRITICAL,
        "ERROR": logging.ERROR,
        "WARN": logging.WARNING,
        "INFO": logging.INFO,
        "DEBUG": logging.DEBUG,
        "TRACE": _TRACE,
    }
)


def _level_name(level: int) -> str:
    """Kafka's name for the severity that `level` lets through."""
    for name, value in _LEVELS.items():
        if level >= value:
            return name
    return "TRACE"


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)


def _audit_level(levels: Mapping[str, str]) -> int:
    """The level from which lines of the audit log are written, where loggers have `levels`."""
    name = AUDIT_LOGGER
    while name and name not in levels:
        name = name.rpartition(".")[0]
    return _LEVELS[levels.get(name or _ROOT, "TRACE")]


class _Loggers(Resource):
    """The loggers of this process; their levels last until it ends."""

    may_be_replaced = False

    def __init__(self, context: Context, name: str) -> None:
        _check_broker(context, name)
        known = logging.root.manager.loggerDict
        self._names = [
            _ROOT,
            *sorted(name for name, kept in known.items() if isinstance(kept, logging.Logger)),
        ]

    def describe(self) -> list[DescribedSetting]:
        return [self._entry(name) for name in self._names]

    def is_changeable(self, key: Key) -> bool:
        return True

    def overrides(self) -> dict[str, str]:
        levels = {name: _logger(name).level for name in self._names}
        return {name: _level_name(level) for name, level in levels.items() if level}

    def check(self, overrides: Mapping[str, str]) -> None:
        for name, level in overrides.items():
            if name not in self._names:
                raise InvalidConfig(f"There is no logger {name!r}.")
            if level not in _LEVELS:
                raise InvalidConfig(
                    f"{name} cannot have the level {level!r}; use one of {', '.join(_LEVELS)}."
                )
        if _ROOT not in overrides:
            raise InvalidConfig("The level of the root logger cannot be removed; set another.")
        least = _audit_level(overrides)
        if least > logging.INFO and least > _audit_level(self.overrides()):
            raise InvalidConfig(
                f"The audit log would lose lines with the level {_level_name(least)}; set the "
                f"level of {AUDIT_LOGGER} to INFO before, or with it."
            )

    def replace(self, overrides: Mapping[str, str]) -> None:
        before = self.overrides()
        for name in self._names:
            if overrides.get(name) != before.get(name):
                _logger(name).setLevel(_LEVELS.get(overrides.get(name, ""), logging.NOTSET))

    @staticmethod
    def _entry(name: str) -> DescribedSetting:
        level = _level_name(_logger(name).getEffectiveLevel())
        key = Key(name=name, type=ValueType.STRING, default=level, doc="", dynamic=True)
        synonym = Synonym(name=name, value=level, source=ConfigSource.DYNAMIC_BROKER_LOGGER)
        return DescribedSetting(key=key, synonyms=(synonym,))


class _ClientMetrics(Resource):
    """A subscription to clients' metrics."""

    keys = CLIENT_METRICS_KEYS

    def __init__(self, context: Context, name: str) -> None:
        if not name:
            raise InvalidRequest("A subscription to client metrics needs a name.")
        self._subscriptions = context.telemetry.subscriptions
        self._name = name

    def describe(self) -> list[DescribedSetting]:
        return describe_client_metrics(self.overrides())

    def is_changeable(self, key: Key) -> bool:
        return True

    def overrides(self) -> dict[str, str]:
        return dict(self._subscriptions.overrides.get(self._name, {}))

    def check(self, overrides: Mapping[str, str]) -> None:
        problems = check_client_metrics(overrides)
        if problems:
            raise InvalidRequest(str(ConfigErrors(problems)))
        problem = pattern_problem(overrides)
        if problem is not None:
            raise InvalidConfig(problem)

    def replace(self, overrides: Mapping[str, str]) -> None:
        self._subscriptions.replace(self._name, overrides)


class _Group(Resource):
    """A group of the consumer protocol, with or without members."""

    keys = GROUP_KEYS

    def __init__(self, context: Context, name: str) -> None:
        if not name:
            raise InvalidRequest("A group has a name; there is no default for all of them.")
        self._topics = context.topics
        self._name = name

    def describe(self) -> list[DescribedSetting]:
        return describe_group(self.overrides(), self._topics.broker_config)

    def is_changeable(self, key: Key) -> bool:
        return True

    def overrides(self) -> dict[str, str]:
        return dict(self._topics.group_overrides.get(self._name, {}))

    def check(self, overrides: Mapping[str, str]) -> None:
        problems = check_group_overrides(overrides, self._topics.broker_config)
        if problems:
            raise ConfigErrors(problems)

    def replace(self, overrides: Mapping[str, str]) -> None:
        self._topics.set_group_overrides(self._name, overrides)


def is_our_node(context: Context, name: str) -> bool:
    """Whether `name` is the id of this broker or of one of its workers, which share settings."""
    return name.isdecimal() and context.topics.worker_of_node(int(name)) is not None


def _check_broker(context: Context, name: str) -> None:
    if not is_our_node(context, name):
        raise InvalidRequest(
            f"Broker {name!r} is not here; this is broker {context.endpoint.node_id}."
        )


def find_resource(context: Context, resource_type: int, name: str) -> Resource:
    """The resource of that type and name.

    Raises:
        InvalidRequest: the type is unknown, or needs a name, or the broker id is not ours.
        UnknownTopicOrPartition: there is no such topic.
    """
    if resource_type == ResourceType.TOPIC:
        return _Topic(context, name)
    if resource_type == ResourceType.BROKER:
        return _Broker(context, name)
    if resource_type == ResourceType.BROKER_LOGGER:
        return _Loggers(context, name)
    if resource_type == ResourceType.CLIENT_METRICS:
        return _ClientMetrics(context, name)
    if resource_type == ResourceType.GROUP:
        return _Group(context, name)
    known = ", ".join(f"{known.value} ({known.name.lower()})" for known in ResourceType)
    raise InvalidRequest(
        f"Configuration resources of type {resource_type} are unknown; use one of {known}."
    )


class EncodedSettings:
    """The settings of one answer as bytes; of each name the last is kept, to be used again.

    So what topics inherit is encoded once for all of them.
    """

    def __init__(self, message: type, struct: type, version: int) -> None:
        self._encode = struct_encoder(message, struct, version)
        self._last: dict[str, tuple[DescribedSetting, bool, Any]] = {}

    def encoded(
        self, entry: DescribedSetting, make: Callable[[], Any], *, is_changeable: bool = True
    ) -> Any:
        """What `make` makes of `entry`, which depends on these arguments alone."""
        last = self._last.get(entry.key.name)
        if last is None or last[0] is not entry or last[1] is not is_changeable:
            last = self._last[entry.key.name] = (entry, is_changeable, self._encode(make()))
        return last[2]


AskedChange: TypeAlias = (
    alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource
)
"""What a request says of a resource whose settings it changes."""


def complaint_about(
    configs: Iterable[ConfigText | incremental_alter_configs.AlterableConfig],
) -> str | None:
    """Why changes are refused before their resource is looked for, or None."""
    names: set[str] = set()
    for config in configs:
        if config.name in names:
            return "A setting stands in the request more than once."
        names.add(config.name)
        if config.value is None and getattr(config, "config_operation", None) != Operation.DELETE:
            return f"{config.name} has no value; delete it to get the default."
    return None


@contextmanager
def refusals_in(
    answer: alter_configs.AlterConfigsResourceResponse | describe_configs.DescribeConfigsResult,
) -> Iterator[None]:
    """A refusal in the block becomes the error of `answer`."""
    try:
        yield
    except REFUSALS as error:
        answer.error_code = error_code(error)
        answer.error_message = str(error)


async def change(
    context: Context,
    request: RequestContext,
    asked: AskedChange,
    wanted: Callable[[Resource], Mapping[str, str]],
    *,
    validate_only: bool,
    is_repeated: bool = False,
) -> alter_configs.AlterConfigsResourceResponse:
    """Replace a resource's own settings with those of `wanted`, and audit it; a topic needs a name.

    What is wrong with the request itself is refused before the resource is looked for: a client
    without the right gets that answer too, and learns nothing of the resource.

    No other change runs in between: the later of two concurrent changes builds on the earlier.
    """
    answer = alter_configs.AlterConfigsResourceResponse(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
    )
    complaint = complaint_about(asked.configs)
    if is_repeated:
        complaint = "A resource stands in the request more than once."
    elif asked.resource_type == ResourceType.TOPIC and not asked.resource_name:
        complaint = "A topic has a name; there is no default for all of them."
    if complaint is not None:
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = complaint
        return answer

    given = [config.name for config in asked.configs]

    async def act() -> None:
        with refusals_in(answer):
            resource = find_resource(context, asked.resource_type, asked.resource_name)
            resource.check_each_once(given)
            overrides = wanted(resource)
            await resource.try_and_replace(overrides, given, validate_only=validate_only)

    await context.topics.make(act())
    if answer.error_code == ErrorCode.NONE and not validate_only:
        names = ", ".join(given) or "none"
        context.security.audit.changed(
            request,
            f"changed settings of {ResourceType(asked.resource_type).name} "
            f"{asked.resource_name!r}: {names}",
        )
    return answer
