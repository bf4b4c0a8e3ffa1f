"""From options to offsets to tasks, and the reading of one range of offsets as Arrow batches.

Owns ranges of offsets, splits, the meaning of a time for records, pruning by time, and the journal
of decisions. Runs in the driver and on executors, and without Spark.
"""
