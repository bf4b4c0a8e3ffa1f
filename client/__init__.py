"""An asyncio client for any broker with Kafka's protocol: producer, consumer, admin.

Needs only `protocol`. Users import these names from the top-level package. Read next: `connection`
(one socket), `cluster` (leaders and coordinators), then `producer`, `consumer`, `admin`.
"""
