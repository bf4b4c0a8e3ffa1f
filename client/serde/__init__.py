"""Values with a schema: Confluent's frame, a registry's interface, Avro and Protobuf.

Shared by the Spark functions, the console and the client. Nothing here waits for a loop: callers
that have one ask the registry in a thread. fastavro and protobuf are imported on first use.
Imported by `tidelog`, `console`, `pipeline` and `cli.records`.
"""
