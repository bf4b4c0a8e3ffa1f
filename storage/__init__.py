"""Partition logs on disk: segments, their indexes, and everything that time decides about them.

Owns files, offsets and what a crash may leave. Refuses to know requests, Kafka's error codes, the
clock (times are arguments) and the event loop (everything is synchronous). Files are reached
through `storage.disk.files` only, so that tests can run on a disk that loses power. The log is the
truth; every other file is derived from it or a hint that may be lost.

The sub-packages, from the ground up; each imports only those above it in this list:

    errors      what storage refuses or fails to do
    disk        the seam to the operating system, file names, small text files
    segment     one `.log` file, its indexes, the facts about closed segments
    append      what an append would write: checks and stamps, pure
    producers   what a log remembers of its producers, and its snapshots
    log         one partition: append, read, look up by time, flush, retention, compaction
    recovery    opening a partition directory after a clean stop or a crash
    directory   the data directory: topics, partitions, settings, checkpoints
    audit       `fsck`, and giving up what is damaged
    kafka       directories of Apache Kafka, both ways

Read in this order: `storage.disk.files` (what the disk promises), `storage.segment.segment` (one
file and its indexes), `storage.log.log` (one partition), `storage.recovery.recovery` (how it comes
back).
"""
