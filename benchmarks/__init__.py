"""Measurements of Tidelog beside Apache Kafka; start with benchmarks/README.md."""
