"""Commands about the object store of a data directory: its state, restore, promotion of a standby.

They read the bucket or ask the metrics port. May be imported by `cli.main` only.
"""
