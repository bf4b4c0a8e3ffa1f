"""The producers that one partition remembers: sequences, epochs, open transactions.

Owns the state by which duplicates are recognised and the snapshot file that carries it over a
restart. Refuses to know segments; `storage.log.producers` connects the two.
"""
