"""The pytest plugin: brokers as fixtures, and their log in the report of a test that fails.

pytest loads this module at every start where Tidelog is installed, so it imports nothing that
pytest has not loaded; brokers and clients are imported by the tests that use them.

pytest takes every module of a distribution with a plugin for a plugin's, and rewrites its asserts.
For a broker that costs time at the first import, and fails in Python 3.11 when two threads import
at once ("AST constructor recursion depth mismatch"). `leave_asserts` ends that for the product.

| fixture              | scope    | what it is                                                     |
|----------------------|----------|----------------------------------------------------------------|
| `tidelog_broker`     | session  | one broker for all tests, with a settable clock                |
| `tidelog_clock`      | function | its clock, which shows the real time again after the test      |
| `tidelog_faults`     | function | makes requests to it fail; healed after the test               |
| `tidelog_topic`      | function | makes topics on it with names of their own, deleted afterwards |
| `tidelog_new_broker` | function | a broker for this test alone, to restart, kill and pause       |
"""

import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.testing.clock import BrokerClock
    from tidelog.testing.faults import RequestFaults
    from tidelog.testing.process import RunningBroker

PRODUCT = frozenset(
    ("tidelog", "values", "config", "protocol", "storage", "broker", "client", "console", "cli")
) | {"pipeline"}
"""The packages whose asserts stay as they are: one in a wheel, the others in a checkout."""
FIXTURES = ("tidelog_broker", "tidelog_new_broker")
LOG_LINES = 100

_LOG_START = pytest.StashKey["dict[RunningBroker, int]"]()


def leave_asserts() -> None:
    """Take the product's packages off pytest's list of modules whose asserts it rewrites.

    pytest has no call for it but a word in the docstring of each module; where a release keeps its
    list otherwise, nothing happens.
    """
    for finder in sys.meta_path:
        names = getattr(finder, "_must_rewrite", None)
        if isinstance(names, set):
            names -= PRODUCT
            getattr(finder, "_marked_for_rewrite_cache", {}).clear()


leave_asserts()


@pytest.fixture(scope="session")
def tidelog_broker() -> "Iterator[RunningBroker]":
    """One broker for the whole test session, with a settable clock."""
    from tidelog.testing.process import running_broker

    with running_broker(clock="settable", log_level="info") as broker:
        yield broker


@pytest.fixture
def tidelog_new_broker() -> "Iterator[RunningBroker]":
    """A broker for one test, with a settable clock."""
    from tidelog.testing.process import running_broker

    with running_broker(clock="settable", log_level="info") as broker:
        yield broker


@pytest.fixture
def tidelog_clock(tidelog_broker: "RunningBroker") -> "Iterator[BrokerClock]":
    """The clock of `tidelog_broker`; after the test it runs with the real time."""
    clock = tidelog_broker.clock
    yield clock
    clock.set("now")
    clock.resume()


@pytest.fixture
def tidelog_faults(tidelog_broker: "RunningBroker") -> "Iterator[RequestFaults]":
    """Makes requests to `tidelog_broker` fail, come late or lose their connection, in one test."""
    faults = tidelog_broker.faults
    yield faults
    faults.heal()


@pytest.fixture
def tidelog_topic(
    tidelog_broker: "RunningBroker", request: pytest.FixtureRequest
) -> "Iterator[Callable[..., str]]":
    """Makes a topic on `tidelog_broker`: ``tidelog_topic(values, partitions=1, settings={})``.

    It returns the topic's name, which no other test has.
    """
    from itertools import count
    from re import sub

    from tidelog.testing import topics

    made: list[str] = []
    numbers = count(1)
    stem = sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:100]

    def make(values: Any = (), *, partitions: int = 1, settings: Any = None) -> str:
        name = f"{stem}-{id(made):x}-{next(numbers)}"
        made.append(tidelog_broker.create_topic(name, partitions=partitions, settings=settings))
        tidelog_broker.write(name, *values)
        return name

    yield make
    if made:
        topics.run(lambda: topics.delete(tidelog_broker.bootstrap, made))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note where the log of each broker stands when the test begins."""
    brokers = _brokers_of(item)
    if brokers:
        item.stash[_LOG_START] = {broker: len(broker.log) for broker in brokers}
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log of its brokers to the report of a test that failed."""
    report = yield
    if report.failed and report.when == "call":
        for broker, start in item.stash.get(_LOG_START, {}).items():
            lines = broker.log[start:].splitlines()[-LOG_LINES:]
            report.sections.append((f"Tidelog at {broker.bootstrap}", "\n".join(lines)))
    return report


def _brokers_of(item: pytest.Item) -> "list[RunningBroker]":
    values = getattr(item, "funcargs", {})
    return [values[name] for name in FIXTURES if name in values]
