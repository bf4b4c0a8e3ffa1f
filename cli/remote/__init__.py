"""Commands about the object store of a data directory."""
