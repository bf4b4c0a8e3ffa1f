"""What one partition remembers of its producers: sequences, epochs, open transactions.

Owns the state that decides about duplicates and the snapshot file that carries it over a restart.
Refuses to know segments; `storage.log.producers` connects the two.
"""
