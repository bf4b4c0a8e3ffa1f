"""The broker: composes protocol and storage, and waits for clients, threads and time.

From the top down; an import contract keeps the order:

    server, node           the process, and the parts of one broker with their start and stop
    startup_lines          what the log says of a start
    workers                several processes that share one broker
    jobs, operator         background work; the metrics port
    net                    sockets, frames, dispatch, the compiled lanes
    handlers, rights       one module for each API; what each needs to be allowed
    requests               what handlers share
    transactions, groups   coordinators around pure state machines
    group_commit           one sync for the appends of many requests
    fetch                  sessions, waiting fetches, failed reads
    security, telemetry    who a client is; metrics that clients push
    quotas, topics         limits; the topics, their changes, time windows
    remote                 reads from the object store
    clocks, replies        time; answers that come later or in turns

At the bottom are values and services without an order: metrics, errors, threads, space, allocator,
terminal, principal (who a client is).
Refuses to know how bytes lie on disk. Imported by the CLI and `tidelog.testing`.
"""
