"""An asyncio client for any broker that speaks Kafka's protocol: producer, consumer, admin.

Stands on `protocol` alone. Users import these names from the top-level package. Read next:
`connection` (one socket), `cluster` (who leads what), then `producer`, `consumer`, `admin`.
"""
