"""The web console: pages about topics, records, time and groups of any Kafka cluster.

A process of its own, a client like any other. `console.data` asks the brokers and computes,
`console.web` guards and answers requests, `console/static` draws in the browser. Decisions and
figures: docs/adr/0027. It needs the extra ``tidelog[console]``.
"""
