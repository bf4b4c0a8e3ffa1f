# cython: language_level=3
"""What `reader` shares with the lane; read only when it is compiled."""

from storage.segment.feed cimport SegmentEnd


cdef class LogReader:
    cdef object _segments
    cdef readonly dict _hints
    cdef public long long index_interval
    cdef readonly long long next_offset

    cpdef memoryview read(
        self, long long offset, long long max_bytes, long long end_offset, long long end_base,
        long long end_position, bint min_one
    )
    cdef int _remember(self, long long offset, tuple place) except -1
