"""What a console was started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from client.core.options import NOT_SECURED, Security


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """How to reach the brokers, and what the console's own users may do.

    Attributes:
        bootstrap: ``host:port`` of one or more brokers.
        security: TLS and the user of every connection to them.
        broker_http: the metrics port of a Tidelog; None finds it in the broker's settings.
        is_read_only: there are no routes that change anything.
        may_export: records may be downloaded in bulk.
        allowed_hosts: what a request's Host header may be, with the port where there is one.
        users: name to the hash of the password (`console.web.users`); None asks for no login.
        schema_registry: the URL of a registry with Confluent's interface.
    """

    bootstrap: str
    security: Security = NOT_SECURED
    broker_http: str | None = None
    is_read_only: bool = False
    may_export: bool = True
    allowed_hosts: frozenset[str] = frozenset()
    users: Mapping[str, str] | None = field(default=None, repr=False)
    schema_registry: str | None = None
