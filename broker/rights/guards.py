"""The parts that guards are made of.

A guard is called in place of a handler and has its arguments, and the handler as a fourth. It
returns what the handler returns, maybe changed by `then`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.context import Context, Handler, Reply, RequestContext
from protocol.acl import Operation
from protocol.error_codes import ErrorCode

Guard: TypeAlias = Callable[[Context, RequestContext, Any, Handler], Reply]
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


def on_cluster(operation: Operation, refuse: Callable[[Any, RequestContext], Any]) -> Guard:
    """Serve the whole request or refuse it, by a right on the cluster."""

    def guard(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        if Check(context, request).cluster(operation):
            return handler(context, request, message)
        return refuse(message, request)

    return guard


def on_group(operation: Operation, refuse: Callable[[Any, RequestContext], Any]) -> Guard:
    """Serve the whole request or refuse it, by a right on its `group_id`."""

    def guard(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        if Check(context, request).group(operation, message.group_id):
            return handler(context, request, message)
        return refuse(message, request)

    return guard


def on_transactional_id(refuse: Callable[[Any, RequestContext], Any]) -> Guard:
    """Serve the whole request or refuse it, by WRITE on its `transactional_id`."""

    def guard(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        check = Check(context, request)
        if check.transactional_id(Operation.WRITE, message.transactional_id):
            return handler(context, request, message)
        return refuse(message, request)

    return guard


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

    def guard(context: Context, request: RequestContext, message: Any, handler: Handler) -> Reply:
        check = Check(context, request)
        items = getattr(message, field) or ()
        refused = repeated(map(once, items)) if once else ()
        allowed, denied = parted(
            items, lambda item: (once and once(item) in refused) or is_allowed(check, item)
        )
        if not denied:
            return handler(context, request, message)
        if merge:
            denied = merge(denied)

        def with_refusals(answer: Any) -> Any:
            getattr(answer, answers).extend(map(refuse, denied))
            return answer

        if not allowed:
            return with_refusals(empty())
        setattr(message, field, allowed)
        return then(handler(context, request, message), with_refusals)

    return guard
