"""Settings of Apache Kafka that are not served here: the reasons, and the values they may have."""
