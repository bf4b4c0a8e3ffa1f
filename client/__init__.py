"""A client for any broker with Kafka's protocol: producer, consumer and admin for asyncio.

Owns the user's side of the protocol. `core` states once what a client does (versions, routing,
retries, errors, TLS, authentication) and waits for nothing but connections and time; `aio` runs it
in an event loop, `blocking` in a plain thread, for `pipeline`. `serde` reads values with a schema.
The modules beside them are values, checks and pure functions, and the asyncio classes that users
import from the top-level package.

Refuses to know the broker, its storage and its settings; needs only `protocol`. May be imported by
`cli`, `console`, `tidelog` and, without what needs asyncio, `pipeline`.
"""
