# cython: language_level=3
"""The fields and inner steps of `produce_lane.ProduceLane` in C; read only when it is compiled."""

from broker.net.request_fields cimport body_at, int16, int32, size_at, tags_end, topic_end
from protocol.records.record_loops cimport RecordWalk
from storage.append.plain cimport store
from storage.log.lane cimport LogLane

cdef tuple _PARTITIONS
cdef bytearray _NEW_ANSWER
cdef int _PREFIX_BYTES, _ERROR_AT, _BASE_OFFSET_AT, _LOG_START_AT, _FIRST_VERSION, _LAST_VERSION, _FLEXIBLE_SINCE, _TOPIC_IDS_SINCE, _LOG_START_SINCE
cdef int _ZSTD_SINCE, _RECORD_ERRORS_SINCE, _HEADER_BYTES_MIN, _BATCH_OVERHEAD
cdef int _AHEAD_MS, _BEHIND_MS, _LOW_CREDIT_BYTES, _NO_OFFSET, _PRODUCE, _ZSTD, _CODECS_END, _DURABLE, _NONE, _WRITTEN, _NOT_USUAL
cdef int _ANSWERED, _WAITS


cdef class ProduceLane:
    cdef object _context, _security, _topics, _clock, _space, _metrics, _commit
    cdef object _access, _latency, _opening, _scratch
    cdef dict _by_name, _by_id, _lanes, _decided, _parked
    cdef set _failing
    cdef list _parts, _open
    cdef long long _revision, _low_max_ns, _low_count, _low_ns, _credit, _now_ms, _batches, _records, _bytes
    cdef RecordWalk _scratch_walk
    cdef Py_ssize_t _client_at
    cdef readonly bint slice_is_over, has_waits
    cdef readonly long long answer_bytes

    cpdef Py_ssize_t serve(
        self, memoryview view, Py_ssize_t end, int room, long long max_frame_bytes, list answers, session
    ) except -1
    cpdef bint serve_frame(self, memoryview frame, list answers, session) except -1
    cdef bint _begin(self, session, bint is_produce) except -1
    cdef int _observe(self, long long elapsed_ns) except -1
    cdef _end(self)
    cdef _pass_on(self, list appended)
    cdef int _serve_frame(
        self, RecordWalk walk, memoryview view, Py_ssize_t start, Py_ssize_t end, long long started_ns, list answers
    ) except -1
    cdef _end_request(self)
    cdef bint _examine(
        self, RecordWalk walk, memoryview view, Py_ssize_t position, Py_ssize_t end, int version, long long now_ms
    ) except -1
    cdef Py_ssize_t _examine_one(
        self, RecordWalk walk, memoryview view, Py_ssize_t position, Py_ssize_t end, int version, long long now_ms,
        bytes topic, Py_ssize_t head
    ) except -2
    cdef _lane_of(self, bytes topic, long long index, int version)
    cdef list _write(
        self, RecordWalk walk, memoryview view, int version, int acks, long long now_ms, bytearray answer
    )
    cdef _append(self, LogLane lane, RecordWalk walk, memoryview view, long long now_ms)
