"""Apache Kafka judges Tidelog's directories, starts on them, and has its own taken over."""
