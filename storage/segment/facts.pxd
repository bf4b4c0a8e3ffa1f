# cython: language_level=3
"""The numbers of `facts`, as fields of C."""


cdef class SegmentFacts:
    cdef readonly long long base_offset, next_offset, size_bytes
    cdef readonly long long max_timestamp, max_timestamp_offset, first_timestamp
    cdef readonly long long appended_ms, records
    cdef readonly long long offset_index_bytes, time_index_bytes, txn_index_bytes
    cdef readonly long long offset_index_crc, time_index_crc
    cdef readonly long long min_timestamp, data_max_timestamp


cdef class RemoteObject:
    cdef readonly long long base_offset, next_offset, log_bytes, object_bytes, crc, epoch
    cdef readonly object nonce, topic_id
    cdef readonly long long partition
