"""Commands about topics, offsets and groups; they ask a broker over the asyncio client."""
