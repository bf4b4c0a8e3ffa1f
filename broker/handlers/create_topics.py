"""CreateTopics (key 19, versions 0-7): new topics, each accepted or refused on its own.

A timeout of 0 or less: `broker.topics.no_time`.

-1 partitions or replicas mean the broker's default (v4+). A manual assignment must give every
partition, counted from 0, to this one broker. `validate_only` (v1+) checks and creates nothing.
Since v5 the answer contains partitions, replicas and resolved settings, since v7 the topic's id.
A setting becomes bytes at once: topics share what they inherit. After each few topics the loop has
a turn, also when all are refused or only checked.

Differs from Kafka:

* segment.bytes may be as small as 14, and message.timestamp.difference.max.ms and
  message.downconversion.enable exist, as in Kafka up to 3.9;
* segment.index.bytes is at least 24, which is one entry of each index, and not 4; retention.bytes
  is at least -1; internal.segment.bytes does not exist.

Source: KIP-4, KIP-464, KIP-525; Kafka `ReplicationControlManager.createTopic`.
"""

import asyncio
from collections import Counter
from functools import partial

from broker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)
from broker.quotas.throttle import MutationQuota
from broker.requests.config_resources import EncodedSettings
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.no_time import check_time_after, check_time_before
from broker.topics.registry import NO_TOPIC_ID
from config import ConfigErrors, check_topic_overrides
from config.describe import DescribedSetting
from protocol.api import create_topics as api

DEFAULT = -1
TOPICS_AT_ONCE = 20
_QUOTA_CODE_SINCE = 6


async def handle(
    context: Context, request: RequestContext, message: api.CreateTopicsRequest
) -> api.CreateTopicsResponse:
    """Create every acceptable topic, durably, and answer for all."""
    quota = context.security.mutation_quota(
        request, is_strict=request.api_version >= _QUOTA_CODE_SINCE
    )
    counts = Counter(topic.name for topic in message.topics)
    settings = EncodedSettings(
        api.CreateTopicsResponse, api.CreatableTopicConfigs, request.api_version
    )
    results: dict[str, api.CreatableTopicResult] = {}
    for number, topic in enumerate(message.topics, 1):
        if number % TOPICS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if topic.name in results:
            continue
        try:
            check_time_before(request.api_key, request.api_version, message.timeout_ms)
            if counts[topic.name] > 1:
                raise InvalidRequest(f"Topic {topic.name!r} stands in the request more than once.")
            results[topic.name] = await _create(context, message, topic, quota, settings)
            if not message.validate_only:
                context.security.audit.changed(request, f"created topic {topic.name}")
                check_time_after(message.timeout_ms)
        except REFUSALS as error:
            results[topic.name] = api.CreatableTopicResult(
                name=topic.name, error_code=error_code(error), error_message=str(error)
            )
    return api.CreateTopicsResponse(throttle_time_ms=quota.delay_ms, topics=list(results.values()))


async def _create(
    context: Context,
    message: api.CreateTopicsRequest,
    asked: api.CreatableTopic,
    quota: MutationQuota,
    settings: EncodedSettings,
) -> api.CreatableTopicResult:
    partitions = _partition_count(context, asked)
    context.topics.check_new(asked.name, partitions)
    overrides = _overrides(asked)
    topic_id = NO_TOPIC_ID
    if not message.validate_only:
        quota.charge(partitions)
        workers = context.topics.assigned_workers([one.broker_ids for one in _in_order(asked)])
        topic = await context.topics.create(asked.name, partitions, overrides, workers=workers)
        topic_id = topic.topic_id
    return api.CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            settings.encoded(entry, partial(_config, entry))
            for entry in context.topics.describe(overrides)
        ],
    )


def _config(entry: DescribedSetting) -> api.CreatableTopicConfigs:
    return api.CreatableTopicConfigs(
        name=entry.key.name, value=entry.value, config_source=entry.source
    )


def _partition_count(context: Context, asked: api.CreatableTopic) -> int:
    """The topic's number of partitions; checks every rule about counts and replicas."""
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise InvalidRequest(
                "Give either partition and replica counts or a manual assignment, not both."
            )
        _check_assignment(context, asked)
        return len(asked.assignments)
    # KIP-464 lets clients request defaults from version 4 on, but brokers give them at any
    # version: kafkajs requests them in version 3.
    if asked.replication_factor not in {1, DEFAULT}:
        raise InvalidReplicationFactor(
            f"Replication factor {asked.replication_factor} needs as many brokers; this is the "
            "only one, use 1 or -1."
        )
    if asked.num_partitions == DEFAULT:
        return context.config.num_partitions
    if asked.num_partitions < 1:
        raise InvalidPartitions(
            f"A topic has at least 1 partition (asked: {asked.num_partitions})."
        )
    return asked.num_partitions


def _check_assignment(context: Context, asked: api.CreatableTopic) -> None:
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise InvalidReplicaAssignment(
            "The assignment must number its partitions 0, 1, 2, ... without gaps or repetition."
        )
    context.topics.assigned_workers([one.broker_ids for one in _in_order(asked)])


def _in_order(asked: api.CreatableTopic) -> list[api.CreatableReplicaAssignment]:
    return sorted(asked.assignments, key=lambda one: one.partition_index)


def _overrides(asked: api.CreatableTopic) -> dict[str, str]:
    """The topic's own settings, checked all at once; of a duplicate the last value counts."""
    overrides: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise InvalidConfig(f"{config.name} has no value; leave it out to get the default.")
        overrides[config.name] = config.value
    problems = check_topic_overrides(overrides)
    if problems:
        raise ConfigErrors(problems)
    return overrides
