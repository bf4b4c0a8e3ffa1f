"""The data pipeline: topics as Spark tables by time, and jobs between topics and lakes.

Reaches the broker over Kafka's wire alone, so it works against Apache Kafka too. Executors import
this package with `protocol` and two small modules of `client` (the grammar of times, its error);
never the broker, its storage or its settings. Only `source`, `sink`, `session` and the jobs import
Spark; all other modules run and are tested without a Java machine.
"""
