"""Every dialogue in this folder, said again: the group must answer word for word.

Those in `consumer/` are with the coordinator, of groups in the consumer protocol or in both.

To write a scenario, put its commands into a `.txt` file and run with `TRANSCRIPTS=rewrite`; then
read what was written as if a stranger had: it is the specification from then on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.consumer_dialogue import ConsumerDialogue
from tests.transcripts.dialogue import Dialogue

_FOLDER = Path(__file__).parent
_FILES = sorted(_FOLDER.glob("*.txt"))
_BOTH_PROTOCOLS = sorted((_FOLDER / "consumer").glob("*.txt"))


def _say_again(text: str, dialogue: Dialogue | ConsumerDialogue) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *dialogue.run(line[2:])]
        elif not line or line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def _check(path: Path, dialogue: Dialogue | ConsumerDialogue) -> None:
    text = path.read_text()
    said = _say_again(text, dialogue)
    if os.environ.get("TRANSCRIPTS") == "rewrite":
        path.write_text(said)
    else:
        assert said == text


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_does_the_group_say_the_same_again(path: Path) -> None:
    _check(path, Dialogue())


@pytest.mark.parametrize("path", _BOTH_PROTOCOLS, ids=lambda path: path.stem)
def test_does_a_group_of_either_protocol_say_the_same_again(path: Path) -> None:
    _check(path, ConsumerDialogue())


def test_are_there_dialogues_at_all() -> None:
    assert len(_FILES) >= 20
    assert len(_BOTH_PROTOCOLS) >= 20
