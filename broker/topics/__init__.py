"""The topics this broker serves, and every change to them.

Owns the look-up by name and id, the rules for names and counts, the order of long changes, the
names of time windows, and what is known of partitions at other workers. Knows no files, which
belong to `storage.directory`, and no wire format. Imported by every part of the broker that serves
topics.
"""
