"""Commands about a data directory that no broker has open: show, audit, move to and from Kafka.

They use `storage` and need no broker. May be imported by `cli.main` only.
"""
