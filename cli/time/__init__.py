"""Commands about time: the forecast of retention, the audit of a topic's times, the clock of tests.

They ask the broker's metrics port, since Kafka's protocol has no such requests. `window`
prints the name of a time window and asks nothing. Imported by `cli.main`; how the port is asked, by
`cli.topics` and `cli.remote`.
"""
