"""Share groups (KIP-932): members that take single records of a partition and acknowledge them.

Owns the state of share partitions and of their groups, and its records. Knows no connections and no
wire format: `broker.handlers` translate, `broker.groups.share_coordinator` stores and sets timers.
"""
