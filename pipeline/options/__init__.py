"""The options of the Spark source, sink and jobs, checked before any task starts.

Owns names, forms, bounds and error messages of options. Knows neither Spark nor the broker.
"""
