"""The bucket that a command names: its address, its cluster, its journal."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed, sentence_of
from storage.disk.checkpoints import (
    META_PROPERTIES_FILE,
    ZERO_UUID,
    CorruptCheckpoint,
    MetaProperties,
    format_uuid,
    parse_meta_properties,
)
from storage.disk.files import RealFiles
from storage.remote.engine import BadStoreUrl, ExtraMissing, open_store
from storage.remote.object_store import ObjectStore

GETS_AT_ONCE = 16


def run_all(calls: Iterable[Callable[[], bytes]]) -> Iterable[bytes]:
    """The results of the calls, made in threads, in order."""
    with ThreadPoolExecutor(GETS_AT_ONCE) as pool:
        yield from pool.map(lambda call: call(), calls)


def cluster_of(directory: Path) -> str:
    """The id of the directory's cluster. Raises CommandFailed."""
    return _meta_of(directory).cluster_id


def directory_id_of(directory: Path) -> str:
    """The id under which the directory's broker owns a bucket. Raises CommandFailed."""
    return format_uuid(_meta_of(directory).directory_id or ZERO_UUID)


def _meta_of(directory: Path) -> MetaProperties:
    try:
        content = RealFiles().read_all(f"{directory}/{META_PROPERTIES_FILE}")
        return parse_meta_properties(content)
    except (OSError, CorruptCheckpoint) as error:
        raise CommandFailed(
            f"{directory} does not say which cluster it belongs to ({sentence_of(error)})",
            ExitCode.NOT_FOUND,
        ) from error


def open_bucket(url: str, cluster_id: str) -> ObjectStore:
    """The store at `url`, below the prefix of the cluster. Raises CommandFailed."""
    try:
        return open_store(url, cluster_id)
    except BadStoreUrl as error:
        raise not_opened(error) from error


def not_opened(error: BadStoreUrl) -> CommandFailed:
    """Why a command ends that cannot open its store: a wrong address, or no library for it."""
    code = ExitCode.FAILED if isinstance(error, ExtraMissing) else ExitCode.USAGE
    return CommandFailed(str(error), code)
