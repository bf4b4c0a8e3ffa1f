"""An append before it is written: incoming records checked, stamped and, if needed, converted.

Pure: bytes, rules and the time go in; planned batches or a refusal come out. The log is untouched
until `storage.log.log` writes the plan. Refuses to know files and topics' names.
"""

from protocol.extensions import all_or_none

all_or_none()
