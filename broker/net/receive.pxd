# cython: language_level=3
"""The fields of `receive.FrameReceiver` in C; read only when it is compiled."""

cimport cython


@cython.final
cdef class FrameReceiver:
    cdef readonly long long held_bytes
    cdef public long long max_frame_bytes
    cdef readonly bint is_mid_frame
    cdef public bytes rest
    cdef bytearray _frame
    cdef bytes _prefix
    cdef Py_ssize_t _filled, _size, _trusted_bytes

    cpdef memoryview buffer(self)
    cpdef list received(self, Py_ssize_t count, Py_ssize_t served=*)
    cpdef list cut_rest(self)
    cdef list _take_apart(self, memoryview data, Py_ssize_t end)
    cdef _begin_frame(self, memoryview data, long long size)
