# cython: language_level=3
"""What `request_fields` shares with the lanes; read only when they are compiled."""

cdef int _HEADER_BYTES_MIN, _TOPIC_ID_BYTES

cdef int int16(const unsigned char* data, Py_ssize_t position) noexcept
cdef long long int32(const unsigned char* data, Py_ssize_t position) noexcept
cdef long long int64(const unsigned char* data, Py_ssize_t position) noexcept
cdef long long size_at(const unsigned char* data, Py_ssize_t position, Py_ssize_t end, bint is_flexible) noexcept
cdef long long topic_end(
    const unsigned char* data, Py_ssize_t position, Py_ssize_t end, bint has_id, bint is_flexible
) noexcept
cdef Py_ssize_t body_at(const unsigned char* data, Py_ssize_t start, Py_ssize_t end, bint is_flexible) noexcept
cdef Py_ssize_t text_end(const unsigned char* data, Py_ssize_t position, Py_ssize_t end, long long size) noexcept
cdef Py_ssize_t tags_end(const unsigned char* data, Py_ssize_t position, Py_ssize_t end, bint is_flexible) noexcept
