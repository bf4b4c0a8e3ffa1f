"""Objects of segments that are gone: deleted from the store, then from the manifest.

Owns the second half of a removal. The first half is `storage.log.retention`, where the new start of
the log is synced in the manifest, or `storage.segment.swap`, where a rewritten segment has taken
the place of others. So an object is deleted only when no start of the log can want it. A DELETE
that fails is repeated by the next run of the job; one that was done is done again without harm.

A deleted topic leaves directories that wait for their removal. While the manifest in one names
objects, the directory stays: it is the only record of them.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from storage.disk.file_names import MANIFEST_NAME
from storage.disk.files import Files
from storage.disk.steps import Steps, off_loop
from storage.errors import storage_failure
from storage.log.log import Log
from storage.remote.object_store import ObjectStore
from storage.segment.facts import RemoteObject
from storage.segment.manifest import Manifest

_OBJECT_LINE: Final = re.compile(rb"\n(remote|superseded) ")

MayGo = Callable[[RemoteObject], bool]
"""Whether the journal of the bucket does not name an object any more: only then it goes."""


def _always(_: RemoteObject) -> bool:
    return True


def objects_to_erase(log: Log) -> list[RemoteObject]:
    """The objects wholly below the log's start, which is durable, and those that were rewritten."""
    if log.offline_reason is not None:
        return []
    first = log.segments.first.base_offset
    superseded = () if log.changes.swap is not None else log.manifest.superseded.values()
    below = [
        where
        for where in log.manifest.remote.values()
        if where.next_offset <= log.log_start_offset and where.base_offset < first
    ]
    return [*below, *superseded]


def erase_unused(log: Log, store: ObjectStore, may_go: MayGo = _always) -> Steps[int]:
    """Delete the objects that no start of the log wants and that `may_go`; returns their number.

    Raises StoreFailed, StorageFailed: the rest is deleted by the next call.
    """
    erased = 0
    for where in objects_to_erase(log):
        if not may_go(where):
            continue
        yield from off_loop(partial(store.delete, where.key))
        if log.is_closed:
            break
        try:
            log.manifest.remember_erased(where)
        except OSError as error:
            raise storage_failure("delete", log.path, error) from error
        erased += 1
    return erased


def erase_directory(
    path: str, files: Files, store: ObjectStore, may_go: MayGo = _always
) -> Steps[int]:
    """Delete all objects that the manifest of a deleted partition names; returns their number.

    Nothing happens before all of them `may_go`. The manifest goes afterwards, and nothing keeps the
    directory then. Raises StoreFailed, StorageFailed.
    """
    manifest = Manifest(path, files)
    objects = [*manifest.remote.values(), *manifest.superseded.values()]
    if not all(map(may_go, objects)):
        return 0
    for where in objects:
        yield from off_loop(partial(store.delete, where.key))
    try:
        files.unlink(f"{path}/{MANIFEST_NAME}")
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise storage_failure("delete", path, error) from error
    return len(objects)


def names_objects(path: str, files: Files) -> bool:
    """Whether the directory at `path` is the only record of objects in a store. Any thread."""
    manifest = f"{path}/{MANIFEST_NAME}"
    try:
        if not _OBJECT_LINE.search(files.read_all(manifest)):
            return False
        found = Manifest(path, files)
        return bool(found.remote or found.superseded)
    except FileNotFoundError:
        return False
