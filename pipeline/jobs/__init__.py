"""Jobs between topics and lakes: functions of a session, or subcommands of `tidelog spark`.

| job               | from, to                                                                  |
|-------------------|---------------------------------------------------------------------------|
| archive           | topic to Parquet, Delta or Iceberg by event date, each record once         |
| restore           | such an archive back to a topic, with each record's own time               |
| skew              | topic or archive to a table of lateness, disorder and doubtful times       |
| lateness          | a growing topic to the watermark and maxLateness that it needs             |
| audit             | topic and archive to records and bytes by partition and hour of each       |
| translate-offsets | a group's place in one cluster to the same time in another                 |

Each module is one job: a frozen dataclass of settings, a function that takes a session and the
settings, and nothing of command lines.
"""
