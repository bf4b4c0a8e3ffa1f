# cython: language_level=3
"""The fields and inner steps of `connection` in C; read only when it is compiled."""

cimport cython
from broker.net.receive cimport FrameReceiver

cdef Py_ssize_t PIPELINE_MAX, WRITE_AT_ONCE_BYTES, WRITE_BUFFER_HIGH_BYTES


cdef class Connection:
    cdef object _dispatcher, _dispatch, _guard, _blocked_by, _answers
    cdef public object session, on_lost, peer_host, peer
    cdef readonly object _transport, _slots, _backlog
    cdef Connections _connections
    cdef FrameReceiver _receiver
    cdef list _out
    cdef object _close_reason, _finish_reason
    cdef readonly bint _write_paused
    cdef bint _starting, _waits_for_turn, _read_paused
    cdef public long long muted_until_ms, held_bytes, active_tick, id
    cdef long long _waiting_bytes, _backlog_bytes, _serving_bytes, _linger_ms, _bytes_received
    cdef long long _window_tick, _window_bytes, _stalled_tick, _stalled_bytes, _starved_tick, _authenticate_by_tick

    cdef list _cut(self, Py_ssize_t nbytes)
    cdef bint _refill(self) except -1
    cdef _add_to_backlog(self, list frames)
    cdef _refuse(self, error)
    cdef bint _has_more(self) except -1
    cdef bint _may_start(self) except -1
    cdef _start_requests(self)
    cdef _start_next(self)
    cdef _answered(self, list parts)
    cdef _start_more(self)
    cdef _wait_for_turn(self)
    cdef _wait_for(self, exchange, frame)
    cdef _go_on(self)
    cdef _go_on_later(self)
    cdef long long _queue(self, list parts) except -1
    cdef _write_out(self)
    cdef _count_memory(self)
    cdef _drop_backlog(self)
    cdef _pause_reading(self)
    cdef _resume_reading(self)


cdef class Connections:
    cdef public object on_refused, handshakes, turns, answers, room, per_listener, strangers
    cdef public long long max_frame_bytes, max_unauthenticated_frame_bytes
    cdef public long long tick, memory_bytes, bytes_received, bytes_sent, accepted, refused
    cdef long long _idle_ticks
    cdef object _memory_limit_bytes, _per_host, _ids, _empty
    cdef dict _open, _starved
    cdef bint _is_feeding
