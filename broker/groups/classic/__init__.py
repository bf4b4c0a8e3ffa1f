"""Groups of the classic protocol (JoinGroup, SyncGroup) as values and pure decisions.

Owns the state machine, its members and what it stores of itself. Time is an argument. Refuses to
know timers, the offsets topic and the other protocol.
"""
