# cython: language_level=3
"""The fields and inner steps of `lane_connection` in C; read only when it is compiled."""

from broker.net.connection cimport Connection
from broker.net.fetch_lane cimport FetchLane
from broker.net.produce_lane cimport ProduceLane


cdef class LaneConnection(Connection):
    cdef ProduceLane _lane, _usual_lane
    cdef FetchLane _fetch_lane
    cdef object _refused
    cdef bint _slice_is_over

    cdef bint _serve_waiting(self, ProduceLane lane, memoryview frame) except -1
    cdef Py_ssize_t _fetch(self, Py_ssize_t nbytes) except -1
    cdef bint _waits_for_records(self, Py_ssize_t nbytes) except -1
    cdef _take(self, ProduceLane lane, list answers)
