"""Loading the code for the first requests, once the broker accepts clients.

Imports and code generation are Python, so the thread that does it takes turns with the event loop.
Without it the first client of each API would wait, and with it every other client. The very first
client of a new broker does better alone: it needs little of the code.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from broker.allocator import keep_freed_memory
from broker.net.dispatch import Dispatcher

WARM_UP_AFTER_MS = 200
"""How long a new broker has for its first client before the warm-up."""


def warm_up(dispatchers: Iterable[Dispatcher], is_wanted: Callable[[], bool]) -> None:
    """Load the code of usual requests and of jobs, in a thread; end early if not `is_wanted`."""
    for dispatcher in dispatchers:
        for _ in dispatcher.warm_up():
            if not is_wanted():
                return
    import cramjam  # noqa: F401
    import zstandard  # noqa: F401

    with suppress(ImportError):  # not there on musl
        import re2  # noqa: F401

    from storage.log import compaction, retention  # noqa: F401

    keep_freed_memory()
