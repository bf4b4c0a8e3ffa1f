"""Partition logs on disk: segments, their indexes, and every decision that depends on time.

Owns files, offsets and the recovery from crashes. Refuses to know requests, Kafka's error codes,
the clock (times are arguments) and the event loop (everything is synchronous). Files are reached
through `storage.disk.files` only, so that tests can run on a disk that loses power. The log is the
truth. Every other file is derived from it, or is a hint that may be lost; but where a segment's log
is in an object store, the manifest alone says so.

The sub-packages, from the ground up; each imports only those above it in this list:

    errors      the errors that storage raises
    disk        the seam to the operating system, file names, small text files
    segment     one `.log` file, its indexes, the facts about closed segments
    append      an append before it is written: checks and stamps, pure
    producers   the producers that a log remembers, and its snapshots
    log         one partition: append, read, look up by time, flush, retention, compaction
    remote      closed segments in an object store: upload, local retention, deletion
    recovery    opening a partition directory after a clean stop or a crash
    directory   the data directory: topics, partitions, settings, checkpoints
    bucket      the bucket as a second place of the data directory: journal, restore, standby
    window      the records of a partition with a time in a range, read like a partition
    audit       `fsck`, and accepting the loss of damaged records
    kafka       import from and export to directories of Apache Kafka
"""
