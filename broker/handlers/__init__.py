"""One module per API: request value in, response value out.

A handler uses no other handler, with two exceptions: DeleteAcls reads the filter of DescribeAcls,
and ExpireDelegationToken changes an expiry as RenewDelegationToken does. What others share is in
`broker.requests`.

A module carries the name of its `ApiKey` member in lower case and has one entry, `handle` (see
`broker.requests.context` for its signature). `handler_of` finds it by that rule and imports it at
the first request of its API: a start that loads all handlers and messages takes twice as long.
`protocol.api_keys.SUPPORTED` alone decides what is served; a test compares the two.
What each version of an API changed is said in `protocol.api`, by the module of the same name.
"""

from importlib import import_module

from broker.requests.context import Handler
from protocol.api_keys import ApiKey


def handler_of(key: ApiKey) -> Handler:
    """The handler of `key`, which must be supported."""
    handler: Handler = import_module(f"{__name__}.{key.name.lower()}").handle
    return handler
