"""Waiting and incremental fetches: sessions (KIP-227) and fetches that wait for bytes.

Owns the state between two fetches of a consumer. Knows no records and no sockets.
"""
