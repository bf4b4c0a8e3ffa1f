"""Administrative requests that leave no time: a timeout of 0 or less.

CreateTopics, CreatePartitions and DeleteTopics: brokers with ZooKeeper began the work and answered
REQUEST_TIMED_OUT. Old librdkafka (1.0) sends 0 unless the application sets a time, and reports that
answer as success. Kafka 4 gives the same answer and does nothing, so that such a client believes in
a topic that does not exist. Here the versions that those clients send do the work; later versions
do nothing, as in Kafka 4.

Source: Kafka 2.0 `AdminManager.createTopics`, Kafka 4.3 `KafkaEventQueue` (a deadline in the past).
"""

from typing import Final

from broker.errors import NoTimeLeft
from protocol.api_keys import ApiKey

# The first flexible version of each API.
_NOTHING_DONE_SINCE: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DELETE_TOPICS: 4,
}


def check_time_before(api_key: int, api_version: int, timeout_ms: int) -> None:
    """Refuse the work where the version and the timeout say so; raises `NoTimeLeft`."""
    if timeout_ms <= 0 and api_version >= _NOTHING_DONE_SINCE[api_key]:
        raise NoTimeLeft(timeout_ms, is_done=False)


def check_time_after(timeout_ms: int) -> None:
    """Answer work that is done as clients without a timeout expect; raises `NoTimeLeft`."""
    if timeout_ms <= 0:
        raise NoTimeLeft(timeout_ms, is_done=True)
