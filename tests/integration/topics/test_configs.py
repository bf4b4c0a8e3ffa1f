"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, and what the log makes of them."""

import asyncio
import logging
from pathlib import Path

import pytest

from protocol.api import alter_configs, incremental_alter_configs
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from protocol.api.list_config_resources import ListConfigResourcesRequest
from protocol.error_codes import ErrorCode
from protocol.structs import ConfigText
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    client: RawClient,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = (await client.request(request, version)).results
    assert isinstance(result, DescribeConfigsResult)
    return result


async def test_a_topic_is_described_beside_others_as_alone(tmp_path: Path) -> None:
    """What topics inherit is encoded once for all of them, and once more after a change."""
    async with running_broker(tmp_path, time_windows_enable="true") as running:
        client = await running.client()
        names = ["plain", "own", "plain-2", "own-2", "plain.__t__1793527200000__1793530800000"]
        for name in names[:4]:
            await create_topic(client, name)
        for name in ("own", "own-2"):
            own = ("retention.ms", SET, f"{len(name)}000")
            assert await incremental(client, own, name=name) == 0
        for version in range(5):
            for change in ("1", "2"):
                inherited = ("log.roll.ms", SET, change)
                assert await incremental(client, inherited, resource_type=BROKER, name="1") == 0
                rolled = await value_of(client, "segment.ms", name="plain")
                assert rolled.value == change
                alone = [await describe(client, TOPIC, name, version=version) for name in names]
                assert await describe_all(client, names, version) == alone


async def describe_all(
    client: RawClient, names: list[str], version: int
) -> list[DescribeConfigsResult]:
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=n) for n in names]
    everything = {"include_synonyms": True, "include_documentation": True}
    request = DescribeConfigsRequest(resources=resources, **everything)
    results: list[DescribeConfigsResult] = (await client.request(request, version)).results
    return results


async def value_of(
    client: RawClient, key: str, resource_type: int = TOPIC, name: str = "t"
) -> DescribeConfigsResourceResult:
    (config,) = (await describe(client, resource_type, name, [key])).configs
    return config


async def incremental(
    client: RawClient,
    *changes: tuple[str, int, str | None],
    resource_type: int = TOPIC,
    name: str = "t",
    validate_only: bool = False,
) -> int:
    response = await change_response(
        client,
        *changes,
        resource_type=resource_type,
        name=name,
        validate_only=validate_only,
    )
    code: int = response.error_code
    return code


async def change_response(
    client: RawClient,
    *changes: tuple[str, int, str | None],
    resource_type: int,
    name: str,
    validate_only: bool = False,
) -> alter_configs.AlterConfigsResourceResponse:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    (response,) = (await client.request(request, 1)).responses
    assert isinstance(response, alter_configs.AlterConfigsResourceResponse)
    return response


@pytest.mark.parametrize("version", range(5))
async def test_topic_has_the_settings_clients_insist_on(client: RawClient, version: int) -> None:
    await create_topic(client, "t")
    result = await describe(client, TOPIC, "t", None, version)
    names = {config.name for config in result.configs}
    assert names >= {
        "cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas",
        "max.message.bytes", "segment.bytes", "message.timestamp.type",
    }  # fmt: skip


async def test_broker_has_the_settings_clients_insist_on(client: RawClient) -> None:
    result = await describe(client, BROKER, "1")
    names = {config.name for config in result.configs}
    assert names >= {"default.replication.factor", "delete.topic.enable", "log.retention.ms"}


async def test_asked_keys_come_in_the_order_asked(client: RawClient) -> None:
    await create_topic(client, "t")
    keys = ["segment.ms", "cleanup.policy", "no.such.key", "retention.ms"]
    result = await describe(client, TOPIC, "t", keys)
    assert [config.name for config in result.configs] == [k for k in keys if k != "no.such.key"]


async def test_source_and_synonyms_tell_where_a_value_comes_from(tmp_path: Path) -> None:
    async with running_broker(tmp_path, log_retention_hours="1") as broker:
        client = await broker.client()
        await create_topic(client, "own", retention_ms="5")
        await create_topic(client, "inherited")
        own = await value_of(client, "retention.ms", name="own")
        inherited = await value_of(client, "retention.ms", name="inherited")
        default = await value_of(client, "segment.ms", name="own")
        assert (own.value, own.config_source) == ("5", 1)
        assert (inherited.value, inherited.config_source) == ("3600000", 4)
        assert (default.value, default.config_source) == ("604800000", 5)
        assert [level.source for level in own.synonyms] == [1, 4], "Kafka has no default for it"


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (LOGGER, "99", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_unknown_resource(
    client: RawClient, resource_type: int, name: str, code: ErrorCode
) -> None:
    result = await describe(client, resource_type, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


async def test_change_is_in_force_at_once(client: RawClient) -> None:
    await create_topic(client, "t")
    assert (await produce(client, "t", batch("x" * 500))).error_code == 0
    assert await incremental(client, ("max.message.bytes", SET, "100")) == 0
    answer = await produce(client, "t", batch("x" * 500))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_change_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await broker.client()
        await create_topic(client, "t")
        await incremental(client, ("retention.ms", SET, "123"))
    async with running_broker(tmp_path) as broker:
        assert (await value_of(await broker.client(), "retention.ms")).value == "123"


async def test_delete_goes_back_to_the_default(client: RawClient) -> None:
    await create_topic(client, "t", retention_ms="5")
    assert await incremental(client, ("retention.ms", DELETE, None)) == 0
    assert (await value_of(client, "retention.ms")).value == "604800000"


async def test_lists_are_appended_to_and_subtracted_from(client: RawClient) -> None:
    await create_topic(client, "t")
    assert await incremental(client, ("cleanup.policy", APPEND, "compact")) == 0
    assert (await value_of(client, "cleanup.policy")).value == "delete,compact"
    assert await incremental(client, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert (await value_of(client, "cleanup.policy")).value == "compact"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "never")], ErrorCode.INVALID_CONFIG),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        ([("segment.ms", SET, "9"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    ],
)
async def test_refused_change_changes_nothing(
    client: RawClient, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    await create_topic(client, "t", retention_ms="5")
    assert await incremental(client, *changes) == code
    assert (await value_of(client, "retention.ms")).value == "5"
    assert (await value_of(client, "segment.ms")).value == "604800000"


async def test_validate_only_changes_nothing(client: RawClient) -> None:
    await create_topic(client, "t")
    assert await incremental(client, ("retention.ms", SET, "5"), validate_only=True) == 0
    assert (await value_of(client, "retention.ms")).value == "604800000"


@pytest.mark.parametrize(
    ("resource_type", "name", "changes"),
    [
        (TOPIC, "t", {"retention.ms": "99999", "segment.bytes": "77777"}),
        (BROKER, "", {"log.retention.ms": "99999", "log.segment.bytes": "77777"}),
        (
            GROUP,
            "g",
            {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "9000"},
        ),
    ],
)
async def test_two_changes_at_a_time_are_both_in_force(
    broker: RunningBroker, resource_type: int, name: str, changes: dict[str, str]
) -> None:
    clients = [await broker.client(), await broker.client()]
    await create_topic(clients[0], "t")
    answers = await asyncio.gather(
        *(
            incremental(client, (key, SET, value), resource_type=resource_type, name=name)
            for client, (key, value) in zip(clients, changes.items(), strict=True)
        )
    )
    assert answers == [0, 0]
    for key, value in changes.items():
        assert (await value_of(clients[0], key, resource_type, name)).value == value


async def test_a_resource_that_is_named_twice_is_not_changed(client: RawClient) -> None:
    await create_topic(client, "t")
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[
                incremental_alter_configs.AlterableConfig(
                    name=name, config_operation=SET, value="99999"
                )
            ],
        )
        for name in ("retention.ms", "segment.bytes")
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources)
    answers = (await client.request(request, 1)).responses
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert (await value_of(client, "retention.ms")).value != "99999"


async def test_alter_configs_replaces_everything(client: RawClient) -> None:
    await create_topic(client, "t", retention_ms="5")
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[ConfigText(name="segment.ms", value="99")],
            )
        ]
    )
    for version in range(3):
        (response,) = (await client.request(request, version)).responses
        assert response.error_code == ErrorCode.NONE
    assert (await value_of(client, "segment.ms")).value == "99"
    assert (await value_of(client, "retention.ms")).value == "604800000"


async def test_kip_32_name_is_an_alias(client: RawClient) -> None:
    await create_topic(client, "t")
    assert await incremental(client, ("max.message.time.difference.ms", SET, "10")) == 0
    answer = await produce(client, "t", batch("a", timestamp=5))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


async def test_broker_default_reaches_topics_that_inherit(
    broker: RunningBroker, client: RawClient
) -> None:
    await create_topic(client, "t")
    change = ("log.retention.ms", SET, "777")
    assert await incremental(client, change, resource_type=BROKER, name="1") == 0
    assert (await value_of(client, "retention.ms")).value == "777"
    assert broker.broker.topics.led_log("t", 0).config.retention_ms == 777


async def test_static_broker_setting_is_read_only(client: RawClient) -> None:
    setting = await value_of(client, "listeners", BROKER, "1")
    assert setting.read_only
    change = ("listeners", SET, "PLAINTEXT://:1")
    code = await incremental(client, change, resource_type=BROKER, name="1")
    assert code == ErrorCode.INVALID_REQUEST


async def test_level_of_a_logger_is_changed_and_taken_back(client: RawClient) -> None:
    name = "broker.node"
    logger = logging.getLogger(name)
    assert logger.level == logging.NOTSET

    async def level() -> str | None:
        return (await value_of(client, name, LOGGER, "1")).value

    inherited = await level()
    assert await incremental(client, (name, SET, "TRACE"), resource_type=LOGGER, name="1") == 0
    assert (logger.level, await level()) == (5, "TRACE")
    assert await incremental(client, (name, DELETE, None), resource_type=LOGGER, name="1") == 0
    assert (logger.level, await level()) == (logging.NOTSET, inherited)


@pytest.mark.parametrize(
    "change",
    [
        ("no.such.logger", SET, "INFO"),
        ("broker.node", SET, "LOUD"),
        ("broker.node", APPEND, "INFO"),
        ("root", DELETE, None),
    ],
)
async def test_bad_change_of_a_logger_changes_nothing(
    client: RawClient, change: tuple[str, int, str | None]
) -> None:
    before = await describe(client, LOGGER, "1")
    code = await incremental(client, change, resource_type=LOGGER, name="1")
    assert code == ErrorCode.INVALID_CONFIG
    assert (await describe(client, LOGGER, "1")).configs == before.configs


async def change_levels(
    client: RawClient, *changes: tuple[str, int, str | None]
) -> alter_configs.AlterConfigsResourceResponse:
    return await change_response(client, *changes, resource_type=LOGGER, name="1")


@pytest.mark.parametrize("name", ["tidelog.audit", "root"])
async def test_no_level_silences_the_audit_log(client: RawClient, name: str) -> None:
    root, audit = logging.getLogger(), logging.getLogger("tidelog.audit")
    was = root.level
    root.setLevel(logging.INFO)
    try:
        for level in ("WARN", "FATAL"):
            response = await change_levels(client, (name, SET, level))
            assert response.error_code == ErrorCode.INVALID_CONFIG
            assert response.error_message is not None
            assert f"lose lines with the level {level}; set the level of" in response.error_message
        assert (root.level, audit.level) == (logging.INFO, logging.NOTSET)
        for level in ("TRACE", "INFO"):
            assert (await change_levels(client, (name, SET, level))).error_code == 0
        both = (("tidelog.audit", SET, "INFO"), ("root", SET, "ERROR"))
        assert (await change_levels(client, *both)).error_code == 0
        assert (root.level, audit.level) == (logging.ERROR, logging.INFO)
        taken_back = await change_levels(client, ("tidelog.audit", DELETE, None))
        assert taken_back.error_code == ErrorCode.INVALID_CONFIG
    finally:
        root.setLevel(was)
        audit.setLevel(logging.NOTSET)


async def test_a_level_that_the_start_chose_stays_possible(client: RawClient) -> None:
    root = logging.getLogger()
    was = root.level
    root.setLevel(logging.WARNING)
    try:
        for level, code in (("WARN", 0), ("ERROR", ErrorCode.INVALID_CONFIG)):
            response = await change_levels(client, ("root", SET, level))
            assert response.error_code == code
    finally:
        root.setLevel(was)


async def test_loggers_are_not_replaced_all_together(client: RawClient) -> None:
    request = alter_configs.AlterConfigsRequest(
        resources=[alter_configs.AlterConfigsResource(resource_type=LOGGER, resource_name="1")]
    )
    (response,) = (await client.request(request, 2)).responses
    assert response.error_code == ErrorCode.INVALID_REQUEST


async def change_group(
    client: RawClient, name: str, *changes: tuple[str, str], **more: bool
) -> int:
    sets = [(f"consumer.{key}.ms", SET, value) for key, value in changes]
    return await incremental(client, *sets, resource_type=GROUP, name=name, **more)


DEFAULT_TIMINGS = {"assignment": "0", "heartbeat": "5000", "session": "45000"}


async def timings(client: RawClient, name: str) -> dict[str, str | None]:
    configs = (await describe(client, GROUP, name)).configs
    kind = "consumer."
    return {
        each.name.removeprefix(kind).split(".")[0]: each.value
        for each in configs
        if each.name.startswith(kind)
    }


async def heartbeat_interval(client: RawClient, group_id: str) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    interval_ms: int = (await client.request(request, 1)).heartbeat_interval_ms
    return interval_ms


async def test_a_group_has_the_brokers_timings_until_it_has_its_own(client: RawClient) -> None:
    await create_topic(client, "t")
    assert await timings(client, "g") == DEFAULT_TIMINGS
    assert await heartbeat_interval(client, "g") == 5_000
    assert await change_group(client, "g", ("heartbeat.interval", "6000"), validate_only=True) == 0
    assert await change_group(client, "g", ("session.timeout", "50000")) == 0
    assert await change_group(client, "g", ("heartbeat.interval", "7000")) == 0
    assert await heartbeat_interval(client, "g") == 7_000, "at once, for the next heartbeat"
    assert await heartbeat_interval(client, "other") == 5_000
    session = await value_of(client, "consumer.session.timeout.ms", GROUP, "g")
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


async def test_a_groups_settings_survive_a_restart_and_are_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        assert await change_group(await running.client(), "b", ("session.timeout", "50000")) == 0
        assert await change_group(await running.client(), "a", ("session.timeout", "51000")) == 0
    async with running_broker(tmp_path) as running:
        client = await running.client()
        assert (await timings(client, "a"))["session"] == "51000"
        listed = await client.request(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
        assert [each.resource_name for each in listed.config_resources] == ["a", "b"]
        unset = ("consumer.session.timeout.ms", DELETE, None)
        assert await incremental(client, unset, resource_type=GROUP, name="a") == 0
    async with running_broker(tmp_path) as running:
        client = await running.client()
        assert (await timings(client, "a"))["session"] == "45000"
        listed = await client.request(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
        assert [each.resource_name for each in listed.config_resources] == ["b"]


@pytest.mark.parametrize(
    "changes",
    [
        [("session.timeout", "44999")],
        [("session.timeout", "60001")],
        [("heartbeat.interval", "4999")],
        [("heartbeat.interval", "15001")],
        [("session.timeout", "soon")],
        [("nonsense", "1")],
    ],
)
async def test_a_groups_settings_stay_within_the_brokers_bounds(
    client: RawClient, changes: list[tuple[str, str]]
) -> None:
    assert await change_group(client, "g", *changes) == ErrorCode.INVALID_CONFIG
    assert await timings(client, "g") == DEFAULT_TIMINGS


async def test_a_session_is_longer_than_the_time_between_heartbeats(tmp_path: Path) -> None:
    async with running_broker(tmp_path, group_consumer_min_session_timeout_ms="1000") as running:
        client = await running.client()
        tight = [("heartbeat.interval", "9000"), ("session.timeout", "9000")]
        assert await change_group(client, "g", *tight) == ErrorCode.INVALID_CONFIG
        assert await change_group(client, "g", tight[0], ("session.timeout", "9001")) == 0
        replaced = alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=GROUP,
                    resource_name="g",
                    configs=[ConfigText(name="consumer.session.timeout.ms", value="20000")],
                )
            ]
        )
        assert (await client.request(replaced, 2)).responses[0].error_code == 0
        assert await timings(client, "g") == {**DEFAULT_TIMINGS, "session": "20000"}


async def test_there_is_no_default_group(client: RawClient) -> None:
    changed = await change_group(client, "", ("session.timeout", "50000"))
    assert changed == ErrorCode.INVALID_REQUEST


async def test_an_unknown_setting_of_clients_metrics_is_refused(client: RawClient) -> None:
    result = await describe(client, METRICS, "m")
    defaults = {each.name: each.value for each in result.configs}
    assert (result.error_code, defaults) == (
        0,
        {"interval.ms": "300000", "match": "", "metrics": ""},
    )
    for change in (("interval.ms", SET, "99"), ("nonsense", SET, "1")):
        code = await incremental(client, change, resource_type=METRICS, name="m")
        assert code == ErrorCode.INVALID_REQUEST


async def test_a_topic_of_old_times_brings_its_format_version(broker: RunningBroker) -> None:
    client = await broker.client()
    await create_topic(client, "old", message_format_version="0.10.2")
    found = await value_of(client, "message.format.version", name="old")
    assert (found.value, found.config_source) == ("0.10.2", 1)
    assert (await produce(client, "old", batch("a"))).error_code == ErrorCode.NONE
    entry = broker.broker.topics.led_log("old", 0).segments.active.log.pread(17, 0)
    assert entry[16] == 2
    change = ("message.format.version", SET, "2.8-IV1")
    assert await incremental(client, change, name="old") == ErrorCode.NONE
    change = ("message.format.version", SET, "bogus")
    assert await incremental(client, change, name="old") == ErrorCode.INVALID_CONFIG
