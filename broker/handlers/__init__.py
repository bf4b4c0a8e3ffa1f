"""One module per API: request value in, response value out; independent of one another.

A module carries the name of its `ApiKey` member in lower case and has one entry, `handle` (see
`broker.requests.context` for its signature).  `handler_of` finds it by that rule and imports it
when its API is first spoken: with all handlers and their messages a start would take twice as long.
What is served is decided by `protocol.api_keys.SUPPORTED` alone; a test compares the two.
"""

from importlib import import_module

from broker.requests.context import Handler
from protocol.api_keys import ApiKey


def handler_of(key: ApiKey) -> Handler:
    """The handler of `key`, which must be supported."""
    handler: Handler = import_module(f"{__name__}.{key.name.lower()}").handle
    return handler
