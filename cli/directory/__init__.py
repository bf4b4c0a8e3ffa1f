"""Commands about a data directory that no broker has open: show, audit, move to and from Kafka.

They use `storage` and need no broker that runs; users and rules are read and written by
`broker.security` and `broker.quotas`. May be imported by `cli.main` only.
"""
