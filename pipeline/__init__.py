"""The data pipeline: topics as Spark tables by time, and jobs between topics and lakes.

Reaches the broker over Kafka's wire, so it works against Apache Kafka too. Where executors see a
data directory, two modules read its files by their format (docs/formats.md), without `storage`:
`plan.segments` closed segments and their `.txnindex`, `plan.pruning` the manifest. The
segments in a bucket are read with `storage`, by two modules: `plan.bucket` the journal, in the
driver, `plan.objects` the objects, in the tasks that have some. Otherwise executors import this
package with `protocol`, the core and the blocking face of `client`, and `client.serde`; never the
broker or its settings, and nothing that needs asyncio. Only `spark` and the jobs
import Spark; all other modules run and are tested without a Java machine.

    options   options of the source, sink and jobs, checked before any task starts
    net       the broker over blocking sockets
    records   record batches to Arrow columns and back
    values    values with a schema as columns
    plan      from options to offsets to tasks
    spark     the data source, streams, the sink, a session
    jobs      archive, restore, skew, lateness, audit, translate-offsets
"""
