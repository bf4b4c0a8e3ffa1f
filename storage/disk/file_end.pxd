# cython: language_level=3
"""The fields of `file_end.FileEnd` in C; read only when it is compiled."""


cdef class FileEnd:
    cdef public str path
    cdef public long long size, _changes
    cdef public int _fd
    cdef public bint _recent
    cdef public object _files
