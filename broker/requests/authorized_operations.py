"""Authorized operations: every client may do everything, and the answer fields that say so.

Without an authorizer every client may do everything that makes sense on a resource. A field that
the request did not want carries `NOT_ASKED`.

Source: KIP-430.
"""

from typing import Final

from broker.security.acls import OPERATIONS_OF
from protocol.acl import ResourceType

NOT_ASKED: Final = -(2**31)

NO_AUTHORIZER: Final = "This broker has no authorizer: every client may do everything."
"""The message of SECURITY_DISABLED, the answer to requests about access rules."""


def _bits(resource_type: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS_OF[resource_type])


TOPIC_OPERATIONS: Final = _bits(ResourceType.TOPIC)
GROUP_OPERATIONS: Final = _bits(ResourceType.GROUP)
CLUSTER_OPERATIONS: Final = _bits(ResourceType.CLUSTER)
