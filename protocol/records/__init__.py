"""Kafka's record formats, magic 0, 1 and 2: read, checked, stamped, built and converted.

The bytes on the wire and on disk are the same, so `storage`, `broker` and `client` share this
package. It imports `protocol.errors` and `protocol.extensions` of `protocol`, and no more. It knows
no requests, files or clocks, and borrows buffers instead of copying them.

Read in this order: `layout` (the formats as numbers), `batch` (magic 2 in place), `record_loops`
(the compiled loops every hot path runs), `record` and `legacy` (records as values), `scan` (the
entries of a buffer), `compression`, `builder`, `convert`.
"""

from protocol.extensions import all_or_none

all_or_none()
