# cython: language_level=3
"""The fields and inner steps of `fetch_lane` in C; read only when it is compiled."""

cimport cython
from broker.net.request_fields cimport body_at, int16, int32, int64, size_at, tags_end, text_end, topic_end
from protocol.records.record_loops cimport RecordWalk
from storage.append.plain cimport store
from storage.log.lane cimport LogEnd

cdef int _FETCH, _FIRST_VERSION, _LAST_VERSION, _LOG_START_SINCE, _SESSIONS_SINCE, _LEADER_EPOCH_SINCE
cdef int _ZSTD_SINCE, _RACK_SINCE, _FLEXIBLE_SINCE, _TOPIC_IDS_SINCE, _REPLICA_STATE_SINCE
cdef int _HEADER_BYTES_MIN, _ZSTD, _CONSUMER_ID, _NO_EPOCH, _FINAL_EPOCH, _PREFIX_BYTES
cdef long long _FULL_SHARE, _SCATTER_FROM_BYTES, _PARTITIONS_AT_ONCE, _ENOUGH_BYTES, _STEP_BYTES


@cython.final
cdef class Part:
    cdef bytes topic
    cdef long long index, offset, max_bytes, epoch, log_start
    cdef LogEnd log
    cdef object target, records
    cdef long long records_size, high_watermark, stable, start
    cdef bint is_asked


cdef class FetchLane:
    cdef object _context, _security, _topics, _metrics, _latency, _sessions, _commit, _turns, _answers, _scratch
    cdef RecordWalk _walk
    cdef dict _by_name, _by_id
    cdef long long _revision, _min_bytes, _max_bytes, _bytes_read
    cdef int _version, _isolation
    cdef bint _waits, _is_serving, _has_waited, _is_late, _is_cut
    cdef object _session
    cdef list _parts
    cdef readonly list parts, awaited
    cdef readonly long long awaited_bytes, max_wait_at

    cpdef Py_ssize_t serve(self, Py_ssize_t start, Py_ssize_t end, long long max_frame_bytes, session) except -1
    cpdef bint serve_waiting(self, bytearray frame, session, bint is_late) except -1
    cdef bint _is_open(self, session) except -1
    cdef bint _serve_frame(self, Py_ssize_t start, Py_ssize_t end, session) except -1
    cdef bint _examine(self, Py_ssize_t start, Py_ssize_t end, session) except -1
    cdef Py_ssize_t _examine_limits(self, Py_ssize_t start, Py_ssize_t end) except -2
    cdef bint _choose_session(self, long long session_id, long long epoch, session) except -1
    cdef bint _examine_topics(self, Py_ssize_t position, Py_ssize_t end, dict asked) except -1
    cdef bint _ends_as_usual(self, Py_ssize_t position, Py_ssize_t end) except -1
    cdef Py_ssize_t _examine_one(self, Py_ssize_t position, Py_ssize_t end, bytes topic, dict asked) except -2
    cdef bint _join_session(self, dict asked) except -1
    cdef bint _find_logs(self) except -1
    cdef _await_all(self)
    cdef bint _find(self, Part part) except -1
    cdef bint _read(self) except -1
    cdef bint _read_one(self, Part part, long long max_bytes, bint needs_one) except -1
    cdef list _news(self)
    cdef int _answer(self, long long correlation_id, list news) except -1
    cdef int _add_head(self, bytearray answer, list news) except -1
