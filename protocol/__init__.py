"""Bytes to values and back: frames, headers, requests, responses and record batches.

This package owns no socket, clock, loop or file: everything is synchronous and testable from a byte
string. In reading order: ``primitives`` (the vocabulary), ``api`` (every message, declared once),
``schema`` (the construct codec derived from the declarations), ``compiled`` (the same layouts as
straight-line code), ``registry`` (the only entry point), ``frames`` and ``headers`` (what surrounds
a message), ``records`` (what travels inside Produce and Fetch).
"""
