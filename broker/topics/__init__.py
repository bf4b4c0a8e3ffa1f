"""The topics this broker serves, and every change to them.

Owns the look-up by name and id, the rules for names and counts, and the order of long changes.
Knows no files, which belong to `storage.directory`, and no wire format.
"""
