"""The form and target of the broker's log lines: text or JSON, standard error or a file.

A file is reopened when it was moved or removed, so that logrotate needs no signal (the standard
library's `WatchedFileHandler`). JSON lines hold time (ISO 8601, UTC, milliseconds), level, logger
and message, and the traceback where there is one.
"""

import json
import logging
from datetime import UTC, datetime

from cli.failures import CommandFailed

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class TextFormatter(logging.Formatter):
    """One line for people; its time is ISO 8601 with milliseconds and the zone's offset."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The time of a record in this machine's zone."""
        return (
            datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
        )


class JsonFormatter(logging.Formatter):
    """One JSON document per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        time = datetime.fromtimestamp(record.created, UTC)
        document = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False)


def set_up(*, level: str, form: str, file: str | None) -> None:
    """Send everything at `level` and above to `file`, None for standard error, as text or json.

    Raises:
        CommandFailed: the file cannot be opened.
    """
    handler: logging.Handler = logging.StreamHandler() if file is None else _watched(file)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _watched(file: str) -> logging.Handler:
    # Imported only to log to a file: it imports socket servers and pickle.
    from logging.handlers import WatchedFileHandler

    try:
        return WatchedFileHandler(file)
    except OSError as error:
        raise CommandFailed(f"cannot write the log file {file}: {error.strerror}") from None
