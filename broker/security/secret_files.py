"""Reading secrets: from a file, the environment, or as they were written.

A request may name the path of a file, so what could be read for ever is refused.

Source: docs/security.md.
"""

import os
import stat
from typing import Final

from config.values import Secret

FILE_BYTES_MAX: Final = 1 << 20
"""The largest file with a secret, or with settings."""


def read_secret_file(path: str) -> str:
    """The text of a small file.

    Raises:
        OSError: it is not there, is no file, is too large, or this user may not read it.
        UnicodeDecodeError: it is not UTF-8.
    """
    # Without O_NONBLOCK a pipe that nothing writes would hold this thread.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > FILE_BYTES_MAX:
            raise OSError(f"{status.st_size} bytes, more than {FILE_BYTES_MAX}")
        return file.read(FILE_BYTES_MAX).decode("utf-8")


def reveal(secret: Secret) -> str:
    """The text of a secret, from its file or the environment if it names one.

    Raises:
        OSError: its file cannot be read.
        InvalidValue: the environment does not have it.
    """
    return secret.reveal(read_secret_file, os.environ)
