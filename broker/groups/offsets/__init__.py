"""Committed offsets: the table in memory, commits made durable, and lag.

Owns the offsets that groups have committed and those that open transactions may add. Refuses to
know who may commit: the state machines of the groups decide that.
"""
