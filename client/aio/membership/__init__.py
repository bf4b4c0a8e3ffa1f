"""The group of a consumer: being a member by either protocol, and what a rebalance changes.

Owns the tasks that talk to the coordinator. Refuses to know records; positions and readers are
known to `rebalance` alone. May be imported by `client.consumer`.
"""
