"""Committed offsets: the table in memory, commits made durable, and lag.

Owns what groups have committed and what open transactions may add. Refuses to know who may commit:
that is for the groups' state machines.
"""
