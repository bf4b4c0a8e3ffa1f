"""Loading of the groups that came after classic ones: consumer, share and streams groups.

Owns which of them a record of `__consumer_offsets` is about. `broker.groups.loading` imports this
with the first record of such a group, so that a start without one does not load their code.
"""

from broker.groups.consumer import records as consumer_records
from broker.groups.consumer.values import StoredConsumerGroup
from broker.groups.share import records as share_records
from broker.groups.share.group_values import StoredShareGroup
from broker.groups.streams import records as streams_records
from broker.groups.streams.values import StoredStreamsGroup


def take_later(
    key: bytes,
    value: bytes,
    consumer_groups: dict[str, StoredConsumerGroup],
    share_groups: dict[str, StoredShareGroup],
    streams_groups: dict[str, StoredStreamsGroup],
) -> None:
    """Add the newest record of a key to the group that it is about.

    Raises:
        UnknownRecord: a kind of a newer broker, or torn.
    """
    if share_records.KEYS.includes(key):
        share_key = share_records.KEYS.decode(key)
        share = share_groups.setdefault(share_key.group_id, StoredShareGroup())
        share_records.take_record(share, share_key, value)
        return
    if streams_records.KEYS.includes(key):
        streams_key = streams_records.KEYS.decode(key)
        streams = streams_groups.setdefault(streams_key.group_id, StoredStreamsGroup())
        streams_records.take_record(streams, streams_key, value)
        return
    consumer_key = consumer_records.decode_consumer_key(key)
    if consumer_key is not None:
        consumer = consumer_groups.setdefault(consumer_key.group_id, StoredConsumerGroup())
        consumer_records.take_record(consumer, consumer_key, value)
