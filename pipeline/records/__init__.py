"""Record batches to Arrow columns and back, with the codecs of Kafka's batches.

Owns the compiled loop over records. Runs on executors and without Spark. Knows nothing of sockets.
"""

from protocol.extensions import all_or_none

all_or_none()
