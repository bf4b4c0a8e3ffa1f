"""Brokers for tests: real ones, with a clock that the test sets, restarts, kills and faults.

    from tidelog.testing import running_broker

    with running_broker() as broker:
        ...connect any Kafka client to broker.bootstrap...

pytest finds the fixtures `tidelog_broker`, `tidelog_new_broker`, `tidelog_clock`, `tidelog_faults`
and `tidelog_topic` by itself where Tidelog is installed. `in_process_broker` runs a broker in the
event loop of an async test. docs/testing.md has examples.

pytest imports this package at each start, so the names are imported on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.testing.clock import AsyncBrokerClock, BrokerClock, ClockReading
    from tidelog.testing.faults import RequestFault, RequestFaults
    from tidelog.testing.in_process import InProcessBroker, in_process_broker
    from tidelog.testing.process import BrokerDidNotStart, RunningBroker, running_broker
    from tidelog.testing.topics import Seed

__all__ = [
    "AsyncBrokerClock",
    "BrokerClock",
    "BrokerDidNotStart",
    "ClockReading",
    "InProcessBroker",
    "RequestFault",
    "RequestFaults",
    "RunningBroker",
    "Seed",
    "in_process_broker",
    "running_broker",
]


def __getattr__(name: str) -> object:
    """The public names, from the modules that define them (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidelog.testing import clock, faults, in_process, process, topics

    for module in (clock, faults, in_process, process, topics):
        if name in vars(module):
            globals()[name] = vars(module)[name]
            break
    return globals()[name]
