"""The broker's side of tiered storage: requests to the object store, off the event loop."""
