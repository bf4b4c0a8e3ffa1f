"""Being a member of a group whose coordinator assigns (KIP-848), without the waiting.

Owns what a member says in its heartbeats and what it does with the answers. Refuses to know loops,
clocks and connections: `client.aio.membership` sends the heartbeats and calls the listeners. May be
imported by `client` alone.
"""
