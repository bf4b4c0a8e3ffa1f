"""The broker over blocking sockets, as the planner and the tasks need it.

Owns connections, leaders, offsets and producing for one task. Knows nothing of Spark.
"""
