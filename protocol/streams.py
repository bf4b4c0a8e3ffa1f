"""The parts that messages and stored records of Kafka Streams have in common (KIP-1071).

Source: Kafka ``StreamsGroupHeartbeatRequest.json``, ``StreamsGroupTopologyValue.json``.
"""

from protocol.declare import primitives as wire


class KeyValue(wire.Struct):
    """A setting of a topic, or a tag of a client."""

    key: str = wire.string()
    value: str = wire.string()


class TopicInfo(wire.Struct):
    """An internal topic that the application needs."""

    name: str = wire.string()
    partitions: int = wire.int32()
    """0 leaves the number to the broker; always 0 for changelogs."""

    replication_factor: int = wire.int16()
    """0 is the broker's default."""

    topic_configs: list[KeyValue] = wire.array()


class Endpoint(wire.Struct):
    """Where an instance of the application answers interactive queries."""

    host: str = wire.string()
    port: int = wire.uint16()


class CopartitionGroup(wire.Struct):
    """Topics with the same number of partitions: indexes into the lists of the subtopology."""

    source_topics: list[int] = wire.array(wire.INT16)
    source_topic_regex: list[int] = wire.array(wire.INT16)
    repartition_source_topics: list[int] = wire.array(wire.INT16)


class Subtopology(wire.Struct):
    """A part of the application whose tasks are assigned as one."""

    subtopology_id: str = wire.string()
    source_topics: list[str] = wire.array(wire.STRING)
    source_topic_regex: list[str] = wire.array(wire.STRING)
    state_changelog_topics: list[TopicInfo] = wire.array()
    repartition_sink_topics: list[str] = wire.array(wire.STRING)
    repartition_source_topics: list[TopicInfo] = wire.array()
    copartition_groups: list[CopartitionGroup] = wire.array()


class Topology(wire.Struct):
    """What the application reads, stores and writes."""

    epoch: int = wire.int32()
    subtopologies: list[Subtopology] = wire.array()
