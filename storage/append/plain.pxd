# cython: language_level=3
"""The fields of `plain.PlainBatch` in C; read only when it is compiled."""

cdef class PlainBatch:
    cdef readonly Py_ssize_t start, size
    cdef readonly long long last_offset, records_count, base_timestamp, max_timestamp, min_timestamp
    cdef readonly long long producer_id, base_sequence
    cdef readonly int attributes, producer_epoch
    cdef long long size_field
