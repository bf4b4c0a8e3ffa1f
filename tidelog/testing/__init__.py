"""Brokers for tests: real ones, with a clock that the test sets, restarts, kills and faults.

    from tidelog.testing import running_broker

    with running_broker() as broker:
        ...connect any Kafka client to broker.bootstrap...

pytest finds the fixtures `tidelog_broker`, `tidelog_new_broker`, `tidelog_clock` and
`tidelog_topic` by itself where Tidelog is installed. `in_process_broker` runs a broker in the event
loop of an async test. docs/testing.md has examples.

Importing this package loads nothing of the broker or the client: pytest does it at each start.
"""

from tidelog.testing.clock import AsyncBrokerClock, BrokerClock, ClockReading
from tidelog.testing.in_process import InProcessBroker, in_process_broker
from tidelog.testing.process import BrokerDidNotStart, RunningBroker, running_broker
from tidelog.testing.topics import Seed

__all__ = [
    "AsyncBrokerClock",
    "BrokerClock",
    "BrokerDidNotStart",
    "ClockReading",
    "InProcessBroker",
    "RunningBroker",
    "Seed",
    "in_process_broker",
    "running_broker",
]
