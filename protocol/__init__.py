"""Bytes to values and back: frames, headers, requests, responses and record batches.

Nothing here owns a socket, a clock, a loop or a file; everything is synchronous and testable from
a byte string. In reading order: ``primitives`` (the vocabulary), ``api`` (every message, declared
once), ``schema`` (the construct codec derived from the declarations), ``compiled`` (the same
layouts as straight-line code), ``registry`` (the one door), ``frames`` and ``headers`` (what
surrounds a message), ``records`` (what travels inside Produce and Fetch).
"""
