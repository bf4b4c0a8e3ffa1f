"""The same Produce bytes to Apache Kafka and to Tidelog: what differs is intended, or a defect."""
