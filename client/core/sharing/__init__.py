"""Members of share groups (KIP-932): membership, sessions, and the records in hand.

Owns what a share consumer does, for both faces: it waits for connections and time alone. The faces
are `client.share_consumer` for event loops and `client.blocking.share_consumer` for threads.
"""
