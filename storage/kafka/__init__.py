"""Import from and export to directories of Apache Kafka.

Owns Kafka's cluster metadata as files and the plan of a move in either direction. Copies nothing
itself: the commands in `cli` do. Imported by the CLI.
"""
