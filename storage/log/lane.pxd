# cython: language_level=3
"""What `lane` shares with the lane of Produce; read only when they are compiled."""

cimport cython
from protocol.records.record_loops cimport RecordWalk
from storage.append.plain cimport PlainBatch
from storage.log.reader cimport LogReader
from storage.segment.feed cimport SegmentEnd

cdef int _TRANSACTIONAL_BIT
cdef long long _NO_PRODUCER_ID, _SEQUENCE_MAX


cdef class LogEnd:
    cdef public object config, segments, producers, unsynced, append_rules, roll_rules, offline, refusal
    cdef public long long leader_epoch, log_start_offset, log_end_offset, durable_offset, high_watermark
    cdef public long long index_interval
    cdef long long _flush_messages
    cdef public bint waits_for_disk
    cdef public object path, quarantine
    cdef public LogReader reader
    cdef public long long _shown_base, _shown_size

    cpdef bint wants_commit(self) except -1
    cpdef bint has_flush_messages(self) except -1
    cpdef int show_end(self) except -1
    cpdef read(self, long long offset, long long max_bytes, isolation, bint min_one=*)


@cython.final
cdef class LogLane:
    cdef readonly LogEnd log
    cdef readonly PlainBatch batch
    cdef readonly bint is_open, is_taken, waits_for_disk
    cdef readonly long long end_offset, start_offset, appended_bytes
    cdef public long long acknowledged
    cdef public long long index
    cdef public Py_ssize_t head, head_end
    cdef object _producer, _file
    cdef SegmentEnd _segment
    cdef bint _is_usable, _wants_writing, _has_begun

    cpdef int open(self) except -1
    cpdef int close(self) except -1
    cpdef int forget(self) except -1
    cpdef bint examine(
        self, RecordWalk walk, memoryview view, Py_ssize_t start, Py_ssize_t size, long long now_ms, opening,
        int codecs_end
    ) except -1
    cpdef int release(self) except -1
    cpdef int write(self, RecordWalk walk, memoryview view, long long now_ms) except -1
