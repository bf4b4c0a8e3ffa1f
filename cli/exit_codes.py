"""The exit codes, which scripts may rely on; docs/cli.md lists the same ones."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a finished command says to the shell."""

    OK = 0
    FAILED = 1
    """The broker, the disk or the input refused; the sentence on stderr says which."""
    USAGE = 2
    """The command line itself is wrong: an option, a time, a number."""
    UNREACHABLE = 3
    """No broker answered at the address."""
    NOT_FOUND = 4
    """The topic, partition, group or file does not exist."""
    CONFIG = 5
    """The configuration has problems; all of them were listed."""
    DAMAGED = 6
    """An inspected file or directory has defects; the report lists them."""
    INTERRUPTED = 130
    """Ended by Ctrl-C, after clean-up."""
    BROKEN_PIPE = 141
    """The reader of our output went away, as with ``| head``."""
