"""The offsets of one request that may be committed, and the answers for all its partitions.

The partitions are checked in steps, because a client may name 100,000 of them. The commit itself
is one change: one record batch, decided in one step. So `drop_deleted` is called in that step; it
refuses partitions of topics that were deleted between two steps.
"""

from collections.abc import Callable
from typing import Any, Protocol

from broker.groups.offsets.records import CommittedOffset
from broker.groups.offsets.store import TopicPartition
from broker.requests.context import Context
from protocol.error_codes import ErrorCode
from storage.directory.data_dir import Topic


class _Answer(Protocol):
    error_code: int


class OffsetsToCommit:
    """The offsets that are left after the checks."""

    __slots__ = ("_answers", "_context", "_has_too_large", "_named", "_topics", "_unknown_topic")

    def __init__(
        self, context: Context, unknown_topic: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ) -> None:
        """Start with none; partitions of topics that do not exist get `unknown_topic`."""
        self._named: list[tuple[TopicPartition, CommittedOffset]] = []
        # The answers of `_named`, in their order.
        self._answers: list[_Answer] = []
        self._context = context
        self._unknown_topic = unknown_topic
        self._topics: dict[str, Topic] = {}
        self._has_too_large = False

    @property
    def last_of_each(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets to store: of a partition named twice, the last one counts.

        So no request makes more records than there are partitions.
        """
        return dict(self._named)

    def add(
        self, topic: Topic | None, index: int, offset: CommittedOffset, answer: _Answer
    ) -> None:
        """Add an offset, or set the error of `answer` if there is no such partition."""
        if topic is None:
            answer.error_code = self._unknown_topic
        elif not 0 <= index < len(topic.partitions):
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            self._topics[topic.name] = topic
            self._named.append(((topic.name, index), offset))
            self._answers.append(answer)
            if self._is_too_large(offset):
                self._has_too_large = True

    def drop_deleted(self) -> None:
        """Refuse the partitions of topics that were deleted between two steps."""
        find = self._context.topics.find
        gone = {name for name, topic in self._topics.items() if find(name) is not topic}
        if gone:
            self._drop(lambda named: named[0][0] in gone, self._unknown_topic)

    def drop_too_large(self) -> None:
        """Refuse the offsets whose metadata is too large."""
        if self._has_too_large:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            self._drop(lambda named: self._is_too_large(named[1]), code)

    def settle(self, error: ErrorCode) -> None:
        """Answer `error` for every partition that is not refused already."""
        for answer in self._answers:
            answer.error_code = error

    def _is_too_large(self, offset: CommittedOffset) -> bool:
        return len(offset.metadata.encode()) > self._context.config.offset_metadata_max_bytes

    def _drop(self, is_refused: Callable[[Any], bool], code: ErrorCode) -> None:
        kept: list[tuple[TopicPartition, CommittedOffset]] = []
        answers: list[_Answer] = []
        for named, answer in zip(self._named, self._answers, strict=True):
            if is_refused(named):
                answer.error_code = code
            else:
                kept.append(named)
                answers.append(answer)
        self._named, self._answers = kept, answers
