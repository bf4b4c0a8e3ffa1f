"""DeleteTopics (key 20): remove topics and their data.

=======  ==================================================================
version  change
=======  ==================================================================
0        topics by name
1        answer carries throttle_time_ms
2        client, not broker, waits out a throttle
3        TOPIC_DELETION_DISABLED may be answered
4        flexible
5        error message; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
6        topics by name or by id (KIP-516)
=======  ==================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    STRING,
    Direction,
    array,
    int16,
    int32,
    message,
    string,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class DeleteTopicState:
    """A topic by name, or by id with a null name."""

    name: str | None = string(since=6, nullable_since=6, default=None)
    topic_id: bytes = uuid(since=6)


@message(ApiKey.DELETE_TOPICS, Direction.REQUEST, max_version=6, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest:
    """Topics to delete: ``topic_names`` up to v5, ``topics`` from v6."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(STRING, until=5)
    timeout_ms: int = int32()


@dataclass(slots=True, kw_only=True)
class DeletableTopicResult:
    """The outcome for one topic."""

    name: str | None = string(nullable_since=6)
    """Null when an id was given and is unknown."""

    topic_id: bytes = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable_since=5, default=None)


@message(ApiKey.DELETE_TOPICS, Direction.RESPONSE, max_version=6, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse:
    """The outcome for every topic."""

    throttle_time_ms: int = int32(since=1)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
