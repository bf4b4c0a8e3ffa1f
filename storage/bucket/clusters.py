"""The clusters of a bucket, among folders that others have put beside them.

Owns that choice. One folder is taken as it is, and costs one request; of several those count that
have a journal, with one more request each.
"""

from typing import Final

from storage.bucket.journal import has_journal
from storage.remote.engine import list_clusters, open_store

_FOLDERS_MAX: Final = 100
"""Of more folders than that each one counts: so many requests would take too long."""


def clusters_in(url: str) -> list[str]:
    """The ids of the clusters at `url`, sorted; all folders if none of several has a journal.

    Raises BadStoreUrl, StoreFailed.
    """
    found = list_clusters(url)
    if not 1 < len(found) <= _FOLDERS_MAX:
        return found
    return [one for one in found if has_journal(open_store(url, one))] or found
