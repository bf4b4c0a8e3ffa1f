"""Decisions written once and kept: a stream's start, a job's plans and commits.

A directory of small JSON files. `put` writes a document unless it exists, and returns the existing
one: of two writers one wins, and both continue with the same decision. That makes plans repeatable
after a crash at any moment.

A file appears whole or not at all: it is written under a temporary name, synced, and linked to
its own name, which fails if that exists; then the directory is synced. `replace` overwrites, for
the few documents that are a state and not a decision.

The directory must be on a file system that survives restarts of the driver, local or shared.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipeline.errors import JournalConflict
from pipeline.options.reader import local_path

_SUFFIX: Final = ".json"


class Journal:
    """The documents below one directory. Safe between processes of one machine."""

    def __init__(self, directory: str | Path) -> None:
        """Use `directory`, which is made at the first `put`. A `file:` URL is a path too.

        Raises:
            BadOptions: it is an address outside a file system.
        """
        self.directory = local_path(str(directory))

    def put(self, name: str, document: Any) -> Any:
        """The document `name` after this call: `document` if there was none, else the existing one.

        Raises:
            JournalConflict: the existing document cannot be read.
            OSError: the directory cannot be written.
        """
        target = self.directory / f"{name}{_SUFFIX}"
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._write_fresh(target, document)
        try:
            os.link(fresh, target)
        except FileExistsError:
            return self.get(name)
        finally:
            fresh.unlink()
        sync_directory(target.parent)
        return document

    def replace(self, name: str, document: Any) -> None:
        """Make `document` the document `name`, and overwrite any other."""
        target = self.directory / f"{name}{_SUFFIX}"
        target.parent.mkdir(parents=True, exist_ok=True)
        self._write_fresh(target, document).replace(target)
        sync_directory(target.parent)

    def remove(self, name: str) -> None:
        """Remove the document `name`, which no later document depends on yet."""
        target = self.directory / f"{name}{_SUFFIX}"
        target.unlink(missing_ok=True)
        sync_directory(target.parent)

    def find(self, name: str) -> Any | None:
        """The document `name`, or None."""
        return self.get(name) if (self.directory / f"{name}{_SUFFIX}").exists() else None

    def get(self, name: str) -> Any:
        """The document `name`.

        Raises:
            JournalConflict: it is missing or no JSON.
        """
        path = self.directory / f"{name}{_SUFFIX}"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise JournalConflict(f"{path} cannot be read: {error}") from error

    def names(self, folder: str = "") -> Iterator[str]:
        """The names below `folder`, sorted."""
        for path in sorted((self.directory / folder).glob(f"*{_SUFFIX}")):
            yield path.name.removesuffix(_SUFFIX)

    @staticmethod
    def _write_fresh(target: Path, document: Any) -> Path:
        fresh = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(document, file, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        return fresh


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
