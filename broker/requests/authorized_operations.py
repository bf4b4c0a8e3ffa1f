"""Authorized operations: every client may do everything, and the answer fields that say so.

Without an authorizer every client may do everything that makes sense on a resource. A field that
the request did not want carries `NOT_ASKED`.

Source: KIP-430; bit numbers are Kafka's `AclOperation` codes.
"""

from typing import Final

NOT_ASKED: Final = -(2**31)

NO_AUTHORIZER: Final = "This broker has no authorizer: everybody may do everything."
"""The message of SECURITY_DISABLED, the answer to requests about access rules."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
