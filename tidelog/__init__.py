"""Tidelog: what users import.

``from tidelog import Producer, Consumer, Admin``; the command line is ``tidelog`` or
``python -m tidelog``; `tidelog.testing` starts brokers for tests.

The names are imported when they are used: the command line lives in this package too, once it
is installed, and ``tidelog serve`` should not wait for a client it does not need.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client.admin import Admin
    from client.consumer import Consumer
    from client.errors import BrokerRefused, BrokerUnreachable, ClientError, InvalidUse
    from client.producer import Producer
    from client.types import ConsumerRecord, OffsetAndTimestamp, RecordMetadata, TopicPartition

__all__ = [
    "Admin",
    "BrokerRefused",
    "BrokerUnreachable",
    "ClientError",
    "Consumer",
    "ConsumerRecord",
    "InvalidUse",
    "OffsetAndTimestamp",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> object:
    """The public names, from the client's modules (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from client import admin, consumer, errors, producer, types

    for module in (admin, consumer, producer, types, errors):
        if name in vars(module):
            globals()[name] = vars(module)[name]
            break
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
