"""What a broker knows about the client at the other end of a connection.

One `Session` belongs to one connection, and every request carries it. Handlers ask it for the
principal. On a listener without SASL the principal is fixed when the connection is made.
"""

from collections.abc import Callable
from typing import Final

from broker.principal import ANONYMOUS, Principal
from broker.quotas.throttle import Channel
from broker.security.sasl import SaslSession

NO_SOFTWARE: Final = ("unknown", "unknown")
"""Of a client that has not named its library."""


class Session:
    """The identity of one connection."""

    __slots__ = (
        "_fixed",
        "channel",
        "client_id",
        "connection_id",
        "listener",
        "on_authenticated",
        "on_closed",
        "on_failed",
        "peer_host",
        "peer_port",
        "sasl",
        "software",
        "tls",
    )

    def __init__(
        self,
        *,
        listener: str = "PLAINTEXT",
        peer_host: str = "",
        principal: Principal = ANONYMOUS,
        sasl: SaslSession | None = None,
        connection_id: int = 0,
        tls: str = "",
    ) -> None:
        """Begin with `principal`, or let `sasl` find it out.

        Args:
            listener: the name of the listener that the client connected to.
            peer_host: the address of the client, without its port.
            principal: who the client is when there is no SASL.
            sasl: the state machine of a SASL listener.
            connection_id: the number of the connection, 0 for none.
            tls: the version of TLS and the cipher suite, empty without TLS.
        """
        self.listener = listener
        self.peer_host = peer_host
        self.peer_port = 0
        self.software = NO_SOFTWARE
        """The name and the version that the client gives of itself (ApiVersions)."""
        self.client_id = ""
        """What the client called itself when it began to log in with SASL."""
        self.sasl = sasl
        self.connection_id = connection_id
        self.tls = tls
        self.channel: Channel | None = None
        """The connection, while it is open."""
        self.on_closed: Callable[[], object] = _nothing
        """Called when the connection is lost; set by the one thing that ends with it."""
        self.on_authenticated: Callable[[], object] = _nothing
        """Called when SASL has ended well."""
        self.on_failed: Callable[[str], object] = _nothing
        """Called with a reason just before the last answer: the connection closes after it."""
        self._fixed = principal

    @property
    def principal(self) -> Principal:
        """Who the client is."""
        return self._fixed if self.sasl is None else self.sasl.principal

    @property
    def user(self) -> str:
        """The name of the principal."""
        return self.principal.name

    @property
    def may_handle_tokens(self) -> bool:
        """Whether the client may ask about delegation tokens: it has a credential of its own."""
        if self.sasl is None:
            return self._fixed != ANONYMOUS
        return not self.sasl.is_by_token


def _nothing(*_: object) -> None:
    """The listener of a session without one."""
