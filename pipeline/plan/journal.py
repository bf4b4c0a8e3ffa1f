"""Decisions written once and kept: a stream's start, a job's plans and commits.

A folder of small JSON files. `put` writes a document unless it exists, and returns the existing
one: of two writers one wins, and both continue with the same decision. That makes plans repeatable
after a crash at any moment. A document appears whole or not at all (`folders`).

The folder must survive restarts of the driver: a local or shared directory, or an object store.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipeline.errors import Fenced, JournalConflict
from pipeline.plan.folders import folder_of

_SUFFIX: Final = ".json"


class Journal:
    """The documents of one folder. Safe between processes."""

    def __init__(self, directory: str | Path) -> None:
        """Use the folder at `directory`, a path or an address; it is made at the first `put`.

        Raises:
            BadOptions: as `folder_of`.
        """
        self._folder = folder_of(str(directory))
        self.address = self._folder.address

    def put(self, name: str, document: Any) -> Any:
        """The document `name` after this call: `document` if there was none, else the existing one.

        Raises:
            JournalConflict: the existing document cannot be read.
            OSError: the directory cannot be written.
            StoreFailed: the store refuses it.
        """
        data = json.dumps(document, sort_keys=True).encode()
        return document if self._folder.create(f"{name}{_SUFFIX}", data) else self.get(name)

    def decide(self, name: str, document: Any, running: str) -> None:
        """Write a decision, unless an earlier run has written the same one.

        Raises:
            Fenced: another run has decided differently meanwhile; it is `running`.
        """
        kept = self.put(name, document)
        # Compared as JSON: lists and tuples are the same there.
        if json.dumps(kept, sort_keys=True) != json.dumps(document, sort_keys=True):
            raise Fenced(
                f"another run {running} ({self.address}/{name}): let one finish before the next "
                "begins"
            )

    def remove(self, name: str) -> None:
        """Remove the document `name`, which no later document depends on yet."""
        self._folder.remove(f"{name}{_SUFFIX}")

    def find(self, name: str) -> Any | None:
        """The document `name`, or None."""
        try:
            return self._parsed(name)
        except FileNotFoundError:
            return None

    def get(self, name: str) -> Any:
        """The document `name`.

        Raises:
            JournalConflict: it is missing or no JSON.
        """
        try:
            return self._parsed(name)
        except FileNotFoundError as error:
            raise JournalConflict(f"{self._shown(name)} cannot be read: {error}") from error

    def names(self, folder: str = "") -> Iterator[str]:
        """The names below `folder`, sorted."""
        for name in sorted(self._folder.names(folder)):
            if name.endswith(_SUFFIX):
                yield name.removesuffix(_SUFFIX)

    def _parsed(self, name: str) -> Any:
        try:
            return json.loads(self._folder.read(f"{name}{_SUFFIX}"))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise JournalConflict(f"{self._shown(name)} cannot be read: {error}") from error

    def _shown(self, name: str) -> str:
        return self._folder.path(f"{name}{_SUFFIX}")
