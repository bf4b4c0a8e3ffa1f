# cython: language_level=3
"""What `feed` shares with the lane; read only when they are compiled."""

cimport cython

cdef long long _UNKNOWN, _INT32_MAX, _NO_TIMESTAMP, _OFFSET_ENTRY_SIZE, _TIME_ENTRY_SIZE
cdef int _CONTROL_BIT


cdef class IndexTail:
    cdef public long long base_offset, count, _written
    cdef public object path, _file, _files, _first, _second
    cdef public tuple _last

    cpdef int add(self, long long first, long long second) except -1


cdef class CountsEnd:
    cdef public long long _start_ms, _end_ms, _fresh


cdef class SegmentEnd:
    cdef public long long base_offset, next_offset, max_timestamp, max_timestamp_offset
    cdef public long long min_timestamp, data_max_timestamp, appended_ms
    cdef public long long records, bytes_since_index, roll_jitter_ms
    cdef public object log, offset_index, time_index
    cdef public tuple auxiliary
    cdef public object _first_timestamp
    cdef object _rules
    cdef long long _size_max, _newest, _index_bytes

    cpdef int _forget_first(self) except -1
    cdef int _learn(self, rules) except -1
    cpdef bint surely_takes(self, long long size, long long last_offset, long long max_timestamp, rules) except -1
    cpdef bint feed(
        self, long long position, long long size, long long last_offset, long long timestamp,
        long long records_count, long long index_interval, batch, long long min_timestamp
    ) except -1
    cdef int _index(self, long long offset, long long position) except -1
