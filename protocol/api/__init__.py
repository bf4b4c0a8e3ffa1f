"""One module per API, all its versions, declared as dataclasses.

Modules carry the name of the ``ApiKey`` member in lower case, classes and fields those of Kafka's
message specifications; ``message_class`` finds them by that rule and imports a module when its API
is first used, so that start-up pays for no unused API. A nested struct keeps its published name
too, except where a request and a response of one API use one name for two shapes: then the
response's is prefixed with the message's name, and except for the structs that several messages
have in common: these are in ``protocol.structs``.
"""

from importlib import import_module
from types import MappingProxyType
from typing import Final

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction
from protocol.errors import UnsupportedVersion

NOT_DECLARED: Final = frozenset(
    {
        *range(ApiKey.LEADER_AND_ISR, ApiKey.OFFSET_COMMIT),
        *range(ApiKey.VOTE, ApiKey.DESCRIBE_QUORUM),
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        *range(ApiKey.ADD_RAFT_VOTER, ApiKey.INITIALIZE_SHARE_GROUP_STATE),
    }
)
"""Keys without a module: between brokers."""

_CAMEL_NAMES: Final = MappingProxyType({key: key.name.title().replace("_", "") for key in ApiKey})
_CLASSES: Final[dict[tuple[int, Direction], type]] = {}


def message_class(api_key: int, direction: Direction) -> type:
    """The dataclass declared for ``api_key`` in ``direction``.

    Raises:
        UnsupportedVersion: no such API is declared; the version reported is -1.
    """
    known = _CLASSES.get((api_key, direction))
    if known is None:
        if api_key in NOT_DECLARED or api_key not in _CAMEL_NAMES:
            raise UnsupportedVersion(api_key, -1)
        key = ApiKey(api_key)
        module = import_module(f"{__name__}.{key.name.lower()}")
        known = getattr(module, _CAMEL_NAMES[key] + direction.value)
        assert isinstance(known, type)
        _CLASSES[api_key, direction] = known
    return known
