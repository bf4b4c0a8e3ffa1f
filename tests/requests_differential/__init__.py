"""The same requests to Apache Kafka and to Tidelog: how the answers differ, and why."""
