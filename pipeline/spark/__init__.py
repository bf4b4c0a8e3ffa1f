"""Spark's side: the data source, streams, the sink, and a session that needs no set-up.

The only package besides the jobs that imports PySpark.
"""
