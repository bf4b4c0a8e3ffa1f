"""Tidelog: the names that users import.

``from tidelog import Producer, Consumer, Admin``; the command line is ``tidelog`` or
``python -m tidelog``; `tidelog.testing` starts brokers for tests.

The names are imported on first use. The installed command line is in this package too, and
``tidelog serve`` should not wait for a client it does not need.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client.admin import Admin
    from client.aio.batches import Delivery
    from client.blocking.share_consumer import BlockingShareConsumer
    from client.consumer import Consumer
    from client.core.options import Security
    from client.descriptions import NewTopic
    from client.errors import (
        AddressUnusable,
        BadRecords,
        BrokerRefused,
        BrokerUnreachable,
        ClientBroken,
        ClientError,
        InvalidTime,
        InvalidType,
        InvalidUse,
        ListenerFailed,
        NameUnknown,
        NotThere,
        UnsupportedByBroker,
    )
    from client.producer import Producer
    from client.serde.errors import BadSchema, BadValue, NoSuchSchema, RegistryUnreachable
    from client.share_consumer import ShareConsumer
    from client.statistics import ConsumerStatistics, PartitionStatistics, ProducerStatistics
    from client.synchronous.consumer import BlockingConsumer
    from client.synchronous.producer import BlockingDelivery, BlockingProducer
    from client.types import (
        ConsumerRecord,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from protocol.error_codes import ErrorCode
    from protocol.records.layout import TimestampType

    __version__: str

__all__ = [
    "AddressUnusable",
    "Admin",
    "BadFile",
    "BadRecords",
    "BadSchema",
    "BadValue",
    "BlockingConsumer",
    "BlockingDelivery",
    "BlockingProducer",
    "BlockingShareConsumer",
    "BrokerRefused",
    "BrokerUnreachable",
    "ClientBroken",
    "ClientError",
    "Consumer",
    "ConsumerRecord",
    "ConsumerStatistics",
    "Delivery",
    "ErrorCode",
    "GroupMetadata",
    "InvalidTime",
    "InvalidType",
    "InvalidUse",
    "ListenerFailed",
    "NameUnknown",
    "NewTopic",
    "NoSuchSchema",
    "NotThere",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionStatistics",
    "Producer",
    "ProducerStatistics",
    "RecordMetadata",
    "RegistryUnreachable",
    "Security",
    "ShareConsumer",
    "TimestampType",
    "TopicPartition",
    "UnsupportedByBroker",
]


def __getattr__(name: str) -> object:
    """The public names, from the modules that define them, and the version (PEP 562)."""
    if name == "__version__":
        from values.version import VERSION

        globals()[name] = VERSION
    elif name in __all__:
        from client import (
            admin,
            consumer,
            descriptions,
            errors,
            producer,
            share_consumer,
            statistics,
            types,
        )
        from client.aio import batches
        from client.blocking import share_consumer as blocking
        from client.serde import errors as serde_errors
        from client.synchronous import consumer as blocking_consumer
        from client.synchronous import producer as blocking_producer

        modules = (admin, batches, consumer, descriptions, producer, types, errors, statistics)
        blocking_modules = (blocking, blocking_consumer, blocking_producer)
        for module in (*modules, share_consumer, serde_errors, *blocking_modules):
            if name in vars(module):
                globals()[name] = vars(module)[name]
                break
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
