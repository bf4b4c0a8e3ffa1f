"""Commands about topics, offsets and groups; they ask a broker over the asyncio client.

Refuses to know the broker and its files. May be imported by `cli.main` only.
"""
