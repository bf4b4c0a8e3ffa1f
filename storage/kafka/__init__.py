"""Directories of Apache Kafka: taking one over, and leaving one that Kafka starts on.

Owns Kafka's cluster metadata as files and the plan of a move in either direction. Refuses to copy
anything itself: the commands in `cli` do. Imported by the CLI.
"""
