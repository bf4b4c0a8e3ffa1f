"""Tiered storage: closed segments in an object store, their local copies removed."""
