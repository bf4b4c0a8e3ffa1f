"""The terminal of this process: of the broker, and of commands that ask for a password.

Imports nothing of the broker, so a command that reaches none may ask, too.
"""

import os


def has_terminal() -> bool:
    """Whether a terminal controls this process.

    It sends SIGHUP when it closes, and a password can be typed at it although standard input is a
    file or a pipe.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
