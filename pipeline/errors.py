"""The errors of the pipeline; each message names the problem, the place and the cure.

Spark turns an exception of a worker into text. Only the message reaches the user, so it contains
all facts. What brokers refuse, or do not answer, is in `client.errors`. Codes for the shell are in
`jobs.outcome`.
"""


class PipelineError(Exception):
    """Base of all errors that this package raises on purpose."""


class BadOptions(PipelineError):
    """Options that cannot be carried out; all problems at once.

    Attributes:
        problems: one sentence each: option, value, allowed form, cure.
    """

    def __init__(self, *problems: str) -> None:
        """Keep the problems; the message lists them."""
        self.problems = problems
        super().__init__("; ".join(self.problems))


class NoOffsetMatched(PipelineError):
    """No record is as young as a requested time, and the strategy makes this an error."""


class DataLoss(PipelineError):
    """Records that should have been read are missing: deleted, or never written."""


class CorruptData(PipelineError):
    """Log bytes that contradict themselves: a checksum, a size, an offset."""


class MalformedTimestamp(PipelineError):
    """A record's time does not fit into Spark's microseconds."""


class NotShared(PipelineError):
    """A directory is not the same one for the driver and the executors."""


class StoreFailed(PipelineError):
    """An object store refused a request or did not answer."""


class JournalConflict(PipelineError):
    """A journal already holds another decision under the same name."""


class Fenced(PipelineError):
    """Another run with the same identity has taken over."""


class NoJava(PipelineError):
    """No Java runtime that Spark can use was found."""
