"""The exit codes of every command, which scripts may rely on; docs/cli.md lists the same ones.

The rule: the command line itself is checked first (2). The things it names may be missing (4), hold
wrong settings (5) or be damaged (6). The broker may not answer (3). The broker may refuse, or the
disk or the input may fail (1). The jobs of ``tidelog spark`` have the same table
(`pipeline.jobs.outcome`, which must not import this).
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of a finished command."""

    OK = 0
    FAILED = 1
    """The broker, the disk or the input refused; the message on stderr names it."""
    USAGE = 2
    """The command line itself is wrong: an option, a time, a number, two that contradict."""
    UNREACHABLE = 3
    """No broker answered at the address."""
    NOT_FOUND = 4
    """A topic, partition, group, setting, file or directory that was named does not exist."""
    CONFIG = 5
    """The configuration has problems; all of them were listed."""
    DAMAGED = 6
    """An inspected file or directory has defects; the report lists them."""
    NOTHING_TO_DO = 7
    """A job of ``tidelog spark`` found no work; nothing was changed."""
    FENCED = 8
    """Another run of the same job has taken over."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, after clean-up."""
    BROKEN_PIPE = 141
    """The reader of our output went away, as with ``| head``."""
