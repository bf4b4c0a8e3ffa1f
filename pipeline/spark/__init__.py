"""Spark's side: the data source, streams, the sink, and a session that needs no set-up.

Owns the classes that Spark calls, and turns rows and Spark's filters into options and tasks of
`pipeline.plan`. The only package besides the jobs that imports PySpark. Imported by the jobs and
`tidelog.spark`.
"""
