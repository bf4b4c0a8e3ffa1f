"""The broker's own refusals: requests that are well formed but cannot be granted.

Storage and protocol have error families of their own. This one covers facts that only the composed
broker has: existing topics, partition leaders, changeable settings. It also has the start-up errors
for operators. Like theirs, these exceptions carry fields and a finished sentence, and know no wire
codes: `broker.requests.error_mapping` is the only translator.
"""


class BrokerError(Exception):
    """Base of everything the broker itself refuses."""


class UnknownTopicOrPartition(BrokerError):
    """No such topic, or the topic has no such partition."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        self.topic = topic
        self.partition = partition
        what = topic if partition is None else f"{topic}-{partition}"
        super().__init__(f"This broker hosts no topic-partition {what!r}.")


class UnknownTopicId(BrokerError):
    """No topic has this id."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        super().__init__(f"No topic has the id {topic_id.hex()}.")


class InconsistentTopicId(BrokerError):
    """The partition exists, but under another topic id than the requester believes."""


class NotLeader(BrokerError):
    """The partition exists, but another broker leads it."""

    def __init__(self, topic: str, partition: int, leader_id: int) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_id = leader_id
        super().__init__(f"Partition {topic}-{partition} is led by broker {leader_id}.")


class TopicDenied(BrokerError):
    """The client may not do this to the topic, or may not even know whether there is one."""

    def __init__(self) -> None:
        """Name nothing: the client may not know."""
        super().__init__("Topic authorization failed.")


class NotReplica(BrokerError):
    """A broker that has no replica of the partition fetches it as a follower."""

    def __init__(self, topic: str, partition: int, replica_id: int) -> None:
        super().__init__(f"Broker {replica_id} has no replica of {topic}-{partition}.")


class LeaderEpochFenced(BrokerError):
    """The requester's leader epoch is older than ours."""


class LeaderEpochUnknown(BrokerError):
    """The requester's leader epoch is newer than ours."""


class InvalidTopicName(BrokerError):
    """The topic name breaks the naming rules."""


class ReadOnlyWindow(BrokerError):
    """The name stands for a time window of a topic, which only reads can use."""

    def __init__(self, name: str, topic: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is a read-only window of {topic}; use {topic} itself for this.")


class TopicAlreadyExists(BrokerError):
    """A topic of that name exists."""


class InvalidPartitions(BrokerError):
    """The partition count is zero, negative, too large or a decrease."""


class InvalidReplicationFactor(BrokerError):
    """The request wants more replicas than there are brokers."""


class InvalidReplicaAssignment(BrokerError):
    """The manual replica assignment does not fit this cluster."""


class InvalidConfig(BrokerError):
    """A configuration key or value is not acceptable; the message lists every problem."""


class InvalidRequest(BrokerError):
    """The request contradicts itself or is undefined."""


class UnsupportedByVersion(BrokerError):
    """The request's version cannot express or receive this."""


class UnsupportedForClient(BrokerError):
    """The data is compressed with a codec newer than the request's version."""


class NoTimeLeft(BrokerError):
    """The request gives the broker no time, so it is answered as one that timed out.

    `is_done` says whether the work was done nevertheless.
    """

    def __init__(self, timeout_ms: int, *, is_done: bool) -> None:
        done = "the work is done" if is_done else "nothing was done"
        super().__init__(f"timeout_ms is {timeout_ms}, so {done}; give 1 or more.")


class ThrottlingQuotaExceeded(BrokerError):
    """The client has changed too many partitions; it may try again later."""


class SenselessRequest(BrokerError):
    """A number that means nothing, for which Kafka has no code of its own."""


class ConnectionMustClose(BrokerError):
    """No answer is possible or allowed; the message is the reason that is logged."""


class PolicyViolation(BrokerError):
    """The operation is against the topic's policy."""


class InternalTopic(BrokerError):
    """Clients may not write to or delete an internal topic."""


class TopicDeletionDisabled(BrokerError):
    """The operator has switched topic deletion off."""


class StartError(BrokerError):
    """The broker cannot start; the message is one sentence with its cure, for an operator."""

    def __init__(self, problem: str, cure: str) -> None:
        """Join the problem and its cure (empty when the problem includes it)."""
        self.problem = problem
        self.cure = cure
        super().__init__(f"{problem}; {cure}" if cure else problem)


class AddressUnavailable(StartError):
    """A listener's address is taken, forbidden or unknown."""


class DataDirUnusable(StartError):
    """The data directory is locked, not writable, another cluster's or half-written."""
