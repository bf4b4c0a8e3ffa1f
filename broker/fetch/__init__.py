"""Waiting and incremental fetches: sessions (KIP-227) and fetches that wait for bytes.

Owns what is remembered between two fetches of a consumer. Refuses to know records and sockets.
"""
