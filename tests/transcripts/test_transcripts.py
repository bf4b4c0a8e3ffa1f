"""Every dialogue in this folder, said again: the group must answer word for word.

To write a scenario, put its commands into a `.txt` file and run with `TRANSCRIPTS=rewrite`; then
read what was written as if a stranger had: it is the specification from then on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.dialogue import Dialogue

_FILES = sorted(Path(__file__).parent.glob("*.txt"))


def _say_again(text: str) -> str:
    dialogue = Dialogue()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *dialogue.run(line[2:])]
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_does_the_group_say_the_same_again(path: Path) -> None:
    text = path.read_text()
    said = _say_again(text)
    if os.environ.get("TRANSCRIPTS") == "rewrite":
        path.write_text(said)
    else:
        assert said == text


def test_are_there_dialogues_at_all() -> None:
    assert len(_FILES) >= 20
