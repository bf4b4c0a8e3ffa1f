"""The metadata journal of a data directory that no broker has open.

For changes that must be possible before the first start, such as the first user. The directory is
locked meanwhile. A new directory gets its identity; the clean-stop marker and all logs are left as
they are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from config import BrokerConfig
from storage.directory.claim import claim_directory, survey
from storage.directory.metadata_journal import JOURNAL_FILE, MetadataJournal
from storage.disk.checkpoints import RandomBytes, write_clean_shutdown
from storage.disk.files import Files
from storage.errors import ForeignDataDir


@contextmanager
def open_journal(
    config: BrokerConfig, *, files: Files, random_bytes: RandomBytes
) -> Iterator[MetadataJournal]:
    """The journal of `config.data_dir`, locked until the block ends.

    Raises:
        DataDirError: a broker has the directory open, it is not writable, or it holds logs that
            only a start takes over.
    """
    path = os.path.abspath(config.data_dir)
    claim = claim_directory(path, files=files, config=config, random_bytes=random_bytes)
    try:
        if not files.exists(f"{path}/{JOURNAL_FILE}") and survey(path, files).partitions:
            raise ForeignDataDir(
                "the directory has logs and no metadata journal",
                path=path,
                found="logs that another program wrote",
                cure="start the broker on it once, which takes the logs over",
            )
        journal = MetadataJournal(path, files)
        try:
            yield journal
        finally:
            journal.close()
    finally:
        if claim.stopped_cleanly:
            write_clean_shutdown(path, files, claim.unclean)
        claim.lock.release()
