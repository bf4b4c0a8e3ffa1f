"""What a request stands on: topics, groups and producers, made alike on both brokers.

A request that changes something has a scene of its own, named after its case, so that no request
sees what another one did. Requests that only read share one scene, with one of everything. What a
broker chooses itself (ids, epochs) is kept here, to be put into requests and taken out of answers.
"""

from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Final

OLD: Final = 1_600_000_000_000
"""The time of all records."""

UNKNOWN_ID: Final = bytes(range(16))
"""A topic id that no broker has given."""

RECORDS: Final = 3
"""How many records partition 0 of a topic has, one batch each."""

SESSION_MS: Final = 1_800_000
"""No member expires before the run has ended."""

REBALANCE_MS: Final = 2_000
"""How long a group waits for members that do not come back."""

TRANSACTION_MS: Final = 900_000


class Need(Flag):
    """What a scene has to have before the request is sent."""

    NOTHING = 0
    TOPIC = auto()
    """A topic with records; others may use it too."""
    OWN_TOPIC = auto()
    """A topic with records that no other client uses."""
    OWN_NAME = auto()
    """The name of a topic that does not exist yet."""
    MEMBER = auto()
    """A classic group with one member that has its assignment, and a committed offset."""
    COMMITS = auto()
    """A group that has only a committed offset."""
    CONSUMER = auto()
    """A group of the consumer protocol with one member that has its assignment."""
    PRODUCER = auto()
    """A transactional producer."""
    TRANSACTION = auto()
    """The producer has a transaction open, with a record in partition 0."""
    STATES = auto()
    """A broker that keeps states of share groups: Kafka begins to when it is asked for them."""
    RULE = auto()
    """An access rule about the scene's topic, where there is an authorizer."""


@dataclass
class Scene:
    """The names of one case, and what one broker made of them."""

    case: str
    topic: str = "topic"
    topic_id: bytes = UNKNOWN_ID
    other_id: bytes = UNKNOWN_ID
    member_id: str = "member"
    generation: int = 1
    member_epoch: int = 1
    producer_id: int = 7
    producer_epoch: int = 0
    log_dir: str = "/log-dir"
    cluster_id: str = "cluster"
    port: int = 0
    ids: dict[bytes, str] = field(default_factory=dict)
    """Topic ids that this broker gave, with the topics' names."""

    @property
    def group(self) -> str:
        return f"{self.case}-group"

    @property
    def idle_group(self) -> str:
        return f"{self.case}-idle"

    @property
    def consumer_group(self) -> str:
        return f"{self.case}-consumers"

    @property
    def consumer_member(self) -> str:
        return f"{self.case}-consumer-member"

    @property
    def share_group(self) -> str:
        return f"{self.case}-shares"

    @property
    def share_member(self) -> str:
        return f"{self.case}-sharer"

    @property
    def transactional_id(self) -> str:
        return f"{self.case}-tid"


SHARED: Final = "shared"
"""The case of the scene that all reading requests share."""

SHARED_TOPIC: Final = "shared-topic"
"""What the reading requests read."""

COMMON_TOPIC: Final = "common-topic"
"""The topic of requests that change other things than topics."""

OTHER_TOPIC: Final = "other-topic"
"""A topic that no request is about, for those that name a wrong one."""
