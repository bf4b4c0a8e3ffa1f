# cython: language_level=3
"""The fields and inner steps of `produce_lane.ProduceLane` in C; read only when it is compiled."""

from protocol.records.record_loops cimport RecordWalk


cdef class ProduceLane:
    cdef object _context, _observe, _opening, _scratch
    cdef dict _by_name, _by_id, _appended, _acknowledged
    cdef list _parts
    cdef long long _revision
    cdef RecordWalk _scratch_walk
    cdef readonly bint slice_is_over, has_waits

    cdef int _serve_frame(
        self, RecordWalk walk, memoryview view, Py_ssize_t start, Py_ssize_t end, long long started_ns, list answers
    ) except -1
    cdef _end_request(self)
    cdef _tell_group_commit(self)
    cdef bint _examine(
        self, RecordWalk walk, memoryview view, Py_ssize_t position, Py_ssize_t end, int version, long long now_ms
    ) except -1
    cdef Py_ssize_t _examine_one(
        self, RecordWalk walk, memoryview view, Py_ssize_t position, Py_ssize_t end, int version, long long now_ms,
        bytes topic, Py_ssize_t head
    ) except -2
    cdef _lane_of(self, bytes topic, long long index, int version)
    cdef _write(self, memoryview view, int version, int acks, long long now_ms, bytearray answer)
    cdef _append(self, lane, memoryview view, long long now_ms)
