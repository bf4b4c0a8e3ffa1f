"""Commands that write and read records: ``produce`` and ``consume``, over the asyncio client.

Refuses to know the broker and its files: against Apache Kafka the commands do the same. May be
imported by `cli.main`; what ``consume`` shows and counts, by `cli.topics`.
"""
