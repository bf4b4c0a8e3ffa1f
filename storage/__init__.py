"""Partition logs on disk: segments, their indexes, and everything that time decides about them.

Owns the data directory. Knows record batches (`protocol.records`), not requests; is synchronous and
has no clock: time comes in as `now_ms`. The log files are the truth, every other file is derived
from them or a hint that may be lost.

Read in this order: `storage.files` (what the disk promises), `storage.segment` (one file and its
indexes), `storage.log` (one partition), `storage.recovery` (how it comes back).
"""
