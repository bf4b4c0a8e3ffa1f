# cython: language_level=3
"""What `feed` shares with the lane; read only when they are compiled."""

cimport cython

cdef long long _UNKNOWN, _INT32_MAX, _OFFSET_ENTRY_SIZE, _TIME_ENTRY_SIZE


@cython.final
cdef class SegmentEnd:
    cdef readonly long long size, min_timestamp, data_max_timestamp
    cdef object _segment
    cdef object _offset_index, _time_index
    cdef tuple _auxiliary
    cdef long long _next_offset, _max_timestamp, _max_timestamp_offset, _bytes_since_index
    cdef long long _records, _index_room, _size_max, _newest, _last_offset_max, _index_bytes

    cpdef int begin(self, segment) except -1
    cpdef int set_limits(self, rules) except -1
    cpdef bint fits(self, long long size, long long last_offset, long long max_timestamp) except -1
    cpdef bint feed(
        self, long long position, long long size, long long last_offset, long long timestamp,
        long long records_count, long long index_interval, batch, long long min_timestamp
    ) except -1
    cpdef int end(self) except -1
