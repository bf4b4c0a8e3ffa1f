"""The handlers of consumer groups, committed offsets and transactions, by API key.

`broker.dispatch` joins this table with the one of `broker.handlers.table`; a key may stand in one
of them only.
"""

from collections.abc import Mapping

from broker.context import Handler
from protocol.api_keys import ApiKey

GROUP_HANDLERS: Mapping[ApiKey, Handler] = {}
