"""Segments whose bytes are in an object store: what an object consists of, how its log is read.

Knows the layout of objects and which ranges a read lacks. It knows neither the store nor when
segments go there (`storage.remote`), and waits for nothing. Imported by the other
sub-packages of `storage` above `storage.disk`, and by the broker's handlers, jobs and reads.
"""
