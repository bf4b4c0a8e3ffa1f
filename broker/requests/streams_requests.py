"""What a topology of Kafka Streams may name, and tasks as messages list them.

Source: Kafka `KafkaApis.handleStreamsGroupHeartbeat`.
"""

from collections.abc import Iterable

from broker.errors import InvalidTopicName
from broker.groups.consumer.values import indexes_by_key
from broker.groups.streams.values import Tasks
from broker.topics.registry import check_topic_name, is_internal
from protocol.api import streams_group_describe as described
from protocol.api.streams_group_heartbeat import TaskIds
from protocol.streams import Subtopology, Topology


def topic_names(topology: Topology | described.Topology | None) -> list[str]:
    """The topics that the application reads and writes, each once."""
    subtopologies = () if topology is None else topology.subtopologies
    return list(dict.fromkeys(name for sub in subtopologies or () for name in _names(sub)))


def names_problem(names: Iterable[str]) -> str | None:
    """Why an application may not use topics of these names; None when it may."""
    internal = [name for name in names if is_internal(name)]
    if internal:
        return f"An application may not use internal topics: {', '.join(internal)}."
    for name in names:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            return str(error)
    return None


def task_ids(tasks: Tasks) -> list[TaskIds]:
    """Tasks as messages list them."""
    return [
        TaskIds(subtopology_id=name, partitions=indexes)
        for name, indexes in indexes_by_key(tasks).items()
    ]


def _names(sub: Subtopology | described.Subtopology) -> Iterable[str]:
    yield from sub.source_topics
    yield from sub.repartition_sink_topics
    yield from (info.name for info in sub.repartition_source_topics)
    yield from (info.name for info in sub.state_changelog_topics)
