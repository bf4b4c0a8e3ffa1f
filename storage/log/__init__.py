"""One partition: an append-only log of record batches over a list of segments.

Owns appending, rolling, reading by offset and by time, the high watermark, flushing, retention,
compaction and the removal of segments. Refuses to know how a log is rebuilt after a crash
(`storage.recovery`) and which logs exist (`storage.directory`).
"""

from protocol.extensions import all_or_none

all_or_none()
