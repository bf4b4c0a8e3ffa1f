"""A standby over HTTP, on the operators' port: what it follows, and its promotion.

    GET /standby             {"owner": ..., "epoch": 1, "entry": 8, "read_ms_ago": 212, ...}
    POST /standby?promote    the same, with the epoch that begins here

The answer to the second comes when the bucket is taken over and the directory is complete; the
broker then starts again. Who may send it: `broker.operator.http`. Where rules are set, the GET
needs DESCRIBE on the cluster, as /metrics does. The path exists only at a standby.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.operator.queries import encode
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.operator.port_access import Viewer


class StandbyControl(NamedTuple):
    """Questions and commands to a standby; `promote` gives the epoch, or raises StorageError."""

    reading: Callable[[], dict[str, object]]
    promote: Callable[[], Awaitable[int]]

    def show(self, _query: str, viewer: "Viewer") -> tuple[int, bytes]:
        """The answer to GET."""
        refusal = viewer.refusal_of_cluster()
        if refusal is not None:
            return 403, encode({"error": refusal})
        return 200, encode(self.reading())

    async def change(self, query: str) -> tuple[int, bytes]:
        """The answer to POST: take the bucket over."""
        if query != "promote":
            return 400, encode({"error": f"{query!r} is no command; there is promote"})
        try:
            epoch = await self.promote()
        except StorageError as error:
            return 503, encode({"error": f"not promoted: {error}; try again"})
        return 200, encode(self.reading() | {"epoch": epoch})
