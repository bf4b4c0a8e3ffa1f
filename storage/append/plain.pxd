# cython: language_level=3
"""What `plain` shares with the lane; read only when they are compiled."""

cimport cython
from protocol.records.record_loops cimport RecordWalk

cdef int _BATCH_OVERHEAD, _LOG_OVERHEAD, _SIZE_AT, _LEADER_EPOCH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT
cdef int _LAST_OFFSET_DELTA_AT, _BASE_TIMESTAMP_AT, _MAX_TIMESTAMP_AT, _PRODUCER_ID_AT
cdef int _PRODUCER_EPOCH_AT, _BASE_SEQUENCE_AT, _RECORDS_COUNT_AT, _RECORDS_AT, _MAGIC_V2
cdef int _NO_PRODUCER_ID, _CODEC_MASK, _UNUSUAL_BITS, _TYPE_IGNORED
cdef long long _INT64_MAX

cpdef void store(unsigned char* data, Py_ssize_t position, long long value, int size) noexcept


@cython.final
cdef class PlainBatch:
    cdef readonly Py_ssize_t start, size
    cdef readonly long long records_count, max_timestamp, min_timestamp, last_offset
    cdef readonly long long base_timestamp, producer_id
    cdef readonly int attributes, producer_epoch, base_sequence
    cdef object _rules
    cdef bint _is_plain, _keys_required
    cdef long long _size_max, _before_max_ms, _after_max_ms, _decompressed_max
    cdef int _codec

    cdef int _learn(self, rules) except -1
    cdef bint _has_faults(self, RecordWalk walk, long long count, long long now_ms) except -1
    cpdef bint accepts(
        self, RecordWalk walk, memoryview view, Py_ssize_t start, Py_ssize_t size, rules, long long now_ms,
        opening, int codecs_end
    ) except -1
    cpdef int stamp(self, RecordWalk walk, memoryview view, long long next_offset, long long leader_epoch) except -1
