"""What the console asks of brokers and computes from the answers; it knows no HTTP of its own.

Rule: nothing here scans a topic. Each question has a budget of lookups, bytes or seconds, and the
answer says what was left out.

Knows topics and groups by `client` alone. Imported by `console.web`; conditions on records and their
paths also by `cli.records`, the JSON form of records by `cli.record_format`.
"""
