# cython: language_level=3
"""What `record_loops` shares with the other compiled loops; read only when they are compiled."""

cimport cython

cdef int _NEAR_BYTES
cdef int _HEAD_BYTES, _SIZE_AT, _MAGIC_AT, _MAGIC_V2, _CODEC_MASK, _CODEC_AT, _LEGACY_CODEC_AT


cpdef int timestamp_fault(
    long long timestamp, long long oldest, long long newest, int type_rule
) noexcept


@cython.final
cdef class RecordWalk:
    cdef const unsigned char[::1] view
    cdef const unsigned char *data
    cdef Py_ssize_t limit
    cdef long long base_offset
    cdef long long base_timestamp
    cdef readonly Py_ssize_t start, end, position
    cdef readonly long long offset, timestamp
    cdef readonly Py_ssize_t key_at, value_at
    cdef readonly long long key_size, value_size
    cdef readonly long long max_timestamp, max_delta, min_timestamp
    cdef readonly bint sequential

    cpdef bint has_codec(self, int codec, Py_ssize_t end) except -1
    cpdef int begin(
        self, Py_ssize_t start, Py_ssize_t end, long long base_offset, long long base_timestamp
    ) except -1
    cdef bint read_near(self) noexcept
    cdef Py_ssize_t read_varlong(self, Py_ssize_t position) except -1
    cpdef int read_head(self) except -1
    cpdef int read_pair(self) except -1
    cpdef int read_headers_count(self) except -1
    cpdef int read_header(self) except -1
    cpdef int skip_headers(self) except -1
    cpdef int expect_record_end(self) except -1
    cpdef int expect_end(self, long long count) except -1
    cpdef check(
        self, long long count, long long oldest, long long newest, int type_rule,
        bint keys_required
    )
