"""Sockets: bytes of a connection to requests, and answers back in order.

Owns connections, frames, back-pressure, and the dispatch of a request to its handler. Does not
interpret requests, apart from the compiled lanes for usual Produce and Fetch. Imported by
`broker.node`, which puts the broker together; by what has connections of its own: the links of
`broker.workers`, the port of `broker.operator`;
by `broker.jobs` and `broker.warm_up`; for `addresses`, and to see that the lanes are compiled, by
`broker.server`, `broker.startup_lines`, `broker.__main__`, `cli.server` and `tidelog.testing`.
"""

from protocol.extensions import all_or_none

all_or_none()
