"""Share groups (KIP-932): membership, sessions, the records in hand; questions of administrators.

Owns what a share consumer does, for both faces: it waits for connections and time alone. The faces
are `client.share_consumer` for event loops and `client.blocking.share_consumer` for threads.
"""
