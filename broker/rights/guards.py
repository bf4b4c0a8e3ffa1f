"""The parts that guards are made of.

A guard is called in place of a handler and has its arguments, and the handler as a fourth. It
returns what the handler returns, maybe changed by `then`.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from functools import partial, wraps
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.context import Context, Handler, Reply, RequestContext
from protocol.acl import Operation
from protocol.declare.primitives import INT32, field_specs
from protocol.error_codes import ErrorCode

Guard: TypeAlias = Callable[[Context, RequestContext, Any, Handler], Reply]
Steps: TypeAlias = Generator[None, Any, Any]
Item = TypeVar("Item")

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

CLUSTER_MESSAGE = "Cluster authorization failed."
TOPIC_MESSAGE = "Topic authorization failed."
GROUP_MESSAGE = "Group authorization failed."


def parted(items: Iterable[Item], is_allowed: Callable[[Item], bool]) -> tuple[list[Item], ...]:
    """The allowed items and the denied ones."""
    allowed: list[Item] = []
    denied: list[Item] = []
    for item in items:
        (allowed if is_allowed(item) else denied).append(item)
    return allowed, denied


def joined(topics: Iterable[Any], field: str = "partitions") -> list[Any]:
    """The topics of a request, one that is there twice once, with all its partitions."""
    found: dict[tuple[str, bytes | None], Any] = {}
    for topic in topics:
        first = found.setdefault((topic.name, getattr(topic, "topic_id", None)), topic)
        if first is not topic:
            setattr(first, field, [*getattr(first, field), *getattr(topic, field)])
    return list(found.values())


def repeated(names: Iterable[Item]) -> set[Item]:
    """The names that occur more than once: such a request is refused whatever its rights are."""
    return {name for name, count in Counter(names).items() if count > 1}


def refused_topic(answers: Any, topic: Any, **fields: Any) -> Any:
    """The answer to a topic of a request with the same `fields` for each partition.

    Topics are declared alike in requests and answers: the name, in some the id, the partitions.
    The index of a partition is its first int32; in some requests a partition is the index.

    Args:
        answers: the class of the answer.
        topic: what the request says of the topic.
        fields: of the answer to a partition.
    """
    *names, (last, partitions) = field_specs(answers)
    answer: Any = partitions.element
    *asked, indexes = (getattr(topic, name) for name in topic.__dataclass_fields__)
    if indexes and not isinstance(indexes[0], int):
        indexes = map(attrgetter(_index_of(type(indexes[0]))), indexes)
    index_name = _index_of(answer)
    answered = [answer(**{index_name: index}, **fields) for index in indexes]
    named = {name: value for (name, _), value in zip(names, asked, strict=True)}
    return answers(**named, **{last: answered})


def _index_of(partition: type) -> str:
    return next(name for name, spec in field_specs(partition) if spec.element is INT32)


def refuse_topics(answer: Any, answers: Any, topics: Iterable[Any], code: int) -> Any:
    """`answer`, with `code` for every partition of some topics; `answers` is their class."""
    answer.topics.extend(refused_topic(answers, topic, error_code=code) for topic in topics)
    return answer


def guard(steps: Callable[[Check, Any], Steps]) -> Guard:
    """A guard, from steps that take out of a request what the client may not touch.

    The steps get the client's rights and the request. They return None to have it served as it is,
    or a refusal. Otherwise they yield once: they get the handler's answer, and return the one that
    the client gets.
    """

    @wraps(steps)
    def guarded(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        begun = steps(Check(context, request), message)
        try:
            next(begun)
        except StopIteration as end:
            return handler(context, request, message) if end.value is None else end.value
        return then(handler(context, request, message), partial(_finish, begun))

    return guarded


def _finish(begun: Steps, answer: Any) -> Any:
    try:
        begun.send(answer)
    except StopIteration as end:
        return end.value
    raise AssertionError("a guard yields once")


def whole(refusal: Callable[[Check, Any], Any]) -> Guard:
    """Serve the whole request, unless there is a `refusal` to answer instead of None."""

    @wraps(refusal)
    def guarded(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        refused = refusal(Check(context, request), message)
        return handler(context, request, message) if refused is None else refused

    return guarded


def on_cluster(operation: Operation, refuse: Callable[[Any, RequestContext], Any]) -> Guard:
    """Serve the whole request or refuse it, by a right on the cluster."""
    return whole(
        lambda check, message: None if check.cluster(operation) else refuse(message, check.request)
    )


def refusing(response: Callable[..., Any], **fields: Any) -> Callable[[Any, RequestContext], Any]:
    """Refuses with `response`, whatever the request says; `fields` are those of the answer."""
    return lambda message, request: response(**fields)


def on_group(operation: Operation, refuse: Callable[[Any, RequestContext], Any]) -> Guard:
    """Serve the whole request or refuse it, by a right on its `group_id`."""
    return whole(
        lambda check, message: (
            None if check.group(operation, message.group_id) else refuse(message, check.request)
        )
    )


def on_items(
    field: str,
    is_allowed: Callable[[Check, Any], bool],
    answers: str,
    refuse: Callable[[Any], Any],
    empty: Callable[[], Any],
    *,
    merge: Callable[[list[Any]], list[Any]] | None = None,
    once: Callable[[Any], Any] | None = None,
) -> Guard:
    """Serve the allowed items of a request, and refuse the others one by one.

    Args:
        field: the list in the request.
        is_allowed: whether an item of it may be served.
        answers: the list in the answer.
        refuse: the answer to an item that may not be served.
        empty: an answer without items, for a request of which nothing is left.
        merge: makes one of denied items that stand in the request more than once.
        once: the name of an item whose repetition the handler refuses, with or without the right.
    """

    @guard
    def guarded(check: Check, message: Any) -> Steps:
        items = getattr(message, field) or ()
        refused = repeated(map(once, items)) if once else ()
        allowed, denied = parted(
            items, lambda item: (once and once(item) in refused) or is_allowed(check, item)
        )
        if not denied:
            return None
        setattr(message, field, allowed)
        answer = (yield) if allowed else empty()
        getattr(answer, answers).extend(map(refuse, merge(denied) if merge else denied))
        return answer

    return guarded
