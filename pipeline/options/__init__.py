"""What a user may say to the Spark source, sink and jobs, checked before any task starts.

Owns names, forms, bounds and sentences of options. Refuses to know Spark and the broker.
"""
