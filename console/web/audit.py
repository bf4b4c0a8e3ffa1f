"""The console's lines in the audit log: each change, and each request that the guard refuses.

A line says who asked, from where, for what, and what came of it; the request's id is in the answer
too. Text of a request is cut and quoted, so that no request writes a line of its own, and refusals
are bounded, so that a scanner does not fill a disk.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

logger = logging.getLogger("tidelog.audit")

REFUSALS_PER_MINUTE: Final = 100
"""So many refusals have a line of their own; the others of the minute are counted."""

_MINUTE_S: Final = 60.0
_TEXT: Final = 200


def write_change(name: str, scope: Mapping[str, Any], target: str, result: str) -> None:
    """A change that was made, refused by the brokers, or failed."""
    _write(f"change={name}", scope, target, result)


class RefusedRequests:
    """The requests that one console refused, in the log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is refused yet; `clock` gives seconds."""
        self._clock = clock
        self._minute_ends = 0.0
        self._written = 0
        self._counted = 0

    def write(self, scope: Mapping[str, Any], user: str, status: int, sentence: str) -> None:
        """A request that reached no page; `user` is the name that it gave, right or wrong."""
        now = self._clock()
        if now >= self._minute_ends:
            if self._counted:
                logger.info("console refused %s more requests of a minute", self._counted)
            self._minute_ends, self._written, self._counted = now + _MINUTE_S, 0, 0
        if self._written == REFUSALS_PER_MINUTE:
            self._counted += 1
            return
        self._written += 1
        target = f"{scope['method']} {scope['path']}"
        scope = {**scope, "state": {**scope["state"], "user": user}}
        _write(f"refused={status}", scope, target, sentence)


def _write(what: str, scope: Mapping[str, Any], target: str, result: str) -> None:
    state, client = scope["state"], scope.get("client")
    logger.info(
        "console %s target=%r user=%r address=%s request=%s result=%r",
        what,
        target[:_TEXT],
        (state["user"] or "-")[:_TEXT],
        client[0] if client else "-",
        state["request_id"],
        result,
    )
