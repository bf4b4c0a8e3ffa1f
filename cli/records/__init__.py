"""Commands that write and read records: ``produce`` and ``consume``, over the asyncio client."""
