"""Changing the answer of a handler, whatever form its reply has.

Source: the forms of a reply are those of `broker.requests.context`.
"""

from collections.abc import Callable
from types import CoroutineType, GeneratorType
from typing import Any

from broker.replies.pending import Pending


class _Later(Pending[Any]):
    """The changed answer of a request that waits."""

    __slots__ = ("_change", "_is_begun")

    def __init__(self, source: Pending[Any], change: Callable[[Any], Any]) -> None:
        super().__init__(source.abandon)
        self._change = change
        self._is_begun = source.is_begun
        source.subscribe(self._arrived)

    @property
    def is_begun(self) -> bool:  # type: ignore[override]
        """As the answer that it stands for."""
        return self._is_begun

    def _arrived(self, source: Pending[Any]) -> None:
        if source.error is not None:
            self.fail(source.error)
            return
        try:
            changed = then(source.result(), self._change)
        except Exception as error:  # noqa: BLE001 - delivered to the request boundary
            self.fail(error)
        else:
            self.resolve(changed)


def then(reply: Any, change: Callable[[Any], Any]) -> Any:
    """`reply` with its answer changed by `change`, now or when there is one; None stays None."""
    if reply is None:
        return None
    if isinstance(reply, Pending):
        return _Later(reply, change)
    if type(reply) is GeneratorType:
        return _in_steps(reply, change)
    if isinstance(reply, CoroutineType):
        return _awaited(reply, change)
    return change(reply)


def _in_steps(steps: Any, change: Callable[[Any], Any]) -> Any:
    reply = yield from steps
    return then(reply, change)


async def _awaited(coroutine: Any, change: Callable[[Any], Any]) -> Any:
    return then(await coroutine, change)
