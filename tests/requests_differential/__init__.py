"""The same requests to Apache Kafka and to Tidelog: what differs in the answers is intended, or not."""
