"""Log lines: text or JSON, standard error or a file that may be rotated away."""

import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from cli.failures import CommandFailed
from cli.server.logs import set_up

logger = logging.getLogger("tides")


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line_holds_everything(tmp_path: Path) -> None:
    file = tmp_path / "log"
    set_up(level="info", form="json", file=str(file))
    logger.debug("not this")
    logger.info("high %s", "water")
    try:
        raise ValueError("ebb")
    except ValueError:
        logger.exception("low water")
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("info", "tides", "high water")
    assert first["time"].endswith("Z")
    assert "ValueError: ebb" in second["traceback"]


def test_a_text_line_has_its_time_with_the_zone(tmp_path: Path) -> None:
    file = tmp_path / "log"
    set_up(level="info", form="text", file=str(file))
    logger.info("high water")
    time, level, name, *words = file.read_text().split()
    assert datetime.fromisoformat(time).utcoffset() is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", time)
    assert (level, name, words) == ("INFO", "tides:", ["high", "water"])


def test_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "log"
    set_up(level="warning", form="text", file=str(file))
    logger.warning("one")
    file.rename(tmp_path / "log.1")
    logger.warning("two")
    assert "one" in (tmp_path / "log.1").read_text()
    assert "two" in file.read_text()


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot write the log file"):
        set_up(level="info", form="text", file=str(tmp_path / "missing" / "log"))
