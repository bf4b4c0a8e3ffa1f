"""What the commands know of security: own certificates, users of a stopped directory, the files
of clients, and ``serve --secure``, which sets all of it up.

Owns no state. May be imported by `cli` only.
"""
