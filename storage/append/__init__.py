"""What an append would write: incoming records checked, stamped and, where needed, converted.

Pure: bytes, rules and the time go in; planned batches or a refusal come out, and the log is
untouched until `storage.log.log` writes the plan. Refuses to know files and topics' names.
"""
