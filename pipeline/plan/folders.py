"""Where documents and data files are: a directory, or the objects below an address of a store.

    /data/lake                  a directory of a local or mounted file system
    s3://bucket/lake            Amazon S3 and servers of its protocol; s3a:// is the same
    gs://, az://, abfss://      Google and Azure by the same library

A name in a folder is relative, with slashes. `create` is the one step that decides between two
writers: a link on a file system, a conditional PUT (`If-None-Match: *`) on a store. A file appears
whole or not at all in both.

Stores are reached through obstore. Credentials and endpoints come from the environment of each
process (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`, ...) or from the role of
the machine, on executors too; this module reads none of it.

Source: Amazon S3 "conditional writes"; POSIX link(2), rename(2).
"""

import contextlib
import functools
import io
import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from pipeline.errors import BadOptions, StoreFailed
from pipeline.options.reader import is_store, local_path

_TIMEOUT: Final = timedelta(seconds=60)
_RETRIES: Final = 5
_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}


class Folder(Protocol):
    """Files by name. Safe between processes; an object of it belongs to one thread.

    All methods raise OSError where the file system fails, and StoreFailed where a store does.
    """

    address: str
    """An absolute path, or the address of a store."""

    def path(self, name: str) -> str:
        """The whole path or address of a file."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there yet, durably; False if it is there, and as it was."""

    def read(self, name: str) -> bytes:
        """All of a file. Raises FileNotFoundError."""

    def size(self, name: str) -> int | None:
        """Its bytes; None if it is not there."""

    def names(self, prefix: str) -> list[str]:
        """The names of the files in the sub-folder `prefix` (all of it: ''), in no order."""

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""

    def open(self, name: str) -> Any:
        """A file for pyarrow's readers. Raises FileNotFoundError."""

    def scratch(self, name: str) -> Path:
        """A local file to write first what `take` then has appear as `name`."""

    def take(self, name: str, local: Path) -> int:
        """Have `local`, of `scratch`, appear under `name`, durably; its bytes. `local` is gone."""


def folder_of(address: str) -> Folder:
    """The folder at a path, a `file:` URL or the address of a store; nothing is made.

    Raises:
        BadOptions: it is none of these, or the library for stores is missing.
    """
    return ObjectFolder(address) if is_store(address) else LocalFolder(address)


def file_at(path: str) -> tuple[Folder, str]:
    """The folder and the name in it of a whole path or address."""
    address, _, name = path.rpartition("/")
    return folder_of(address or "/"), name


class LocalFolder:
    """A directory, made at the first file in it."""

    def __init__(self, address: str) -> None:
        """Use the directory `address`. Raises BadOptions where it is no path."""
        self._root = local_path(address)
        self.address = str(self._root)

    def path(self, name: str) -> str:
        """See `Folder.path`."""
        return str(self._root / name)

    def create(self, name: str, data: bytes) -> bool:
        """See `Folder.create`: written under another name, synced and linked."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, target)
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        sync_directory(target.parent)
        return True

    def read(self, name: str) -> bytes:
        """See `Folder.read`."""
        return (self._root / name).read_bytes()

    def size(self, name: str) -> int | None:
        """See `Folder.size`."""
        try:
            return (self._root / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        """See `Folder.names`; hidden files are left out."""
        found = (self._root / prefix).glob("*")
        return [path.name for path in found if not path.name.startswith(".") and path.is_file()]

    def remove(self, name: str) -> None:
        """See `Folder.remove`."""
        target = self._root / name
        target.unlink(missing_ok=True)
        if target.parent.exists():
            sync_directory(target.parent)

    def open(self, name: str) -> Any:
        """See `Folder.open`: the path, which pyarrow opens itself."""
        return self.path(name)

    def scratch(self, name: str) -> Path:
        """See `Folder.scratch`: beside the target, hidden, so that a rename is enough."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two tries of a task may run at once, on machines whose process numbers are alike.
        return target.with_name(f"_{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")

    def take(self, name: str, local: Path) -> int:
        """See `Folder.take`."""
        with open(local, "rb") as handle:
            os.fsync(handle.fileno())
        target = self._root / name
        local.replace(target)
        sync_directory(target.parent)
        return target.stat().st_size


class ObjectFolder:
    """The objects of a store below an address."""

    def __init__(self, address: str) -> None:
        """Use the objects below `address`. Raises BadOptions as `folder_of`."""
        self.address = address.rstrip("/")
        self._store = _store_at(self.address)

    def path(self, name: str) -> str:
        """See `Folder.path`."""
        return f"{self.address}/{name}"

    def create(self, name: str, data: bytes) -> bool:
        """See `Folder.create`. After a lost answer the library may meet its own object: False."""
        import obstore
        from obstore import exceptions

        try:
            with _translated("PUT", self.path(name)):
                # Parts would be put together without the condition.
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except StoreFailed as error:
            if isinstance(
                error.__cause__, (exceptions.AlreadyExistsError, exceptions.PreconditionError)
            ):
                return False
            raise
        return True

    def read(self, name: str) -> bytes:
        """See `Folder.read`."""
        import obstore

        with _translated("GET", self.path(name)):
            return bytes(obstore.get(self._store, name).bytes())

    def size(self, name: str) -> int | None:
        """See `Folder.size`."""
        import obstore

        try:
            with _translated("HEAD", self.path(name)):
                return int(obstore.head(self._store, name)["size"])
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        """See `Folder.names`."""
        import obstore

        with _translated("LIST", self.path(prefix)):
            found = obstore.list_with_delimiter(self._store, prefix or None)["objects"]
        return [str(one["path"]).rpartition("/")[2] for one in found]

    def remove(self, name: str) -> None:
        """See `Folder.remove`."""
        import obstore

        with contextlib.suppress(FileNotFoundError), _translated("DELETE", self.path(name)):
            obstore.delete(self._store, name)

    def open(self, name: str) -> Any:
        """See `Folder.open`: reads by ranges."""
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(self.path(name))
        return pa.PythonFile(_ObjectFile(self._store, name, size, self.path(name)), mode="r")

    def scratch(self, name: str) -> Path:
        """See `Folder.scratch`: in the directory for temporary files."""
        descriptor, path = tempfile.mkstemp(prefix="tidelog-", suffix=".tmp")
        os.close(descriptor)
        return Path(path)

    def take(self, name: str, local: Path) -> int:
        """See `Folder.take`: a large file goes in parts, and appears with the last one."""
        import obstore

        size = local.stat().st_size
        with _translated("PUT", self.path(name)):
            obstore.put(self._store, name, local)
        local.unlink()
        return size


class _ObjectFile(io.RawIOBase):
    """An object as a file for pyarrow, which asks for the ranges it needs."""

    def __init__(self, store: Any, name: str, size: int, shown: str) -> None:
        super().__init__()
        self._store = store
        self._name = name
        self._size = size
        self._shown = shown
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """The bytes of the object."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        import obstore

        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        with _translated("GET", self._shown):
            data = bytes(obstore.get_range(self._store, self._name, start=self._at, end=end))
        self._at = end
        return data


@functools.lru_cache(maxsize=16)
def _store_at(address: str) -> Any:
    """The library's store for an address, kept: it holds connections."""
    try:
        from obstore import store as stores
    except ImportError as error:
        raise BadOptions(
            f"address {address!r} needs the package obstore: pip install 'tidelog[spark]'"
        ) from error
    scheme, _, rest = address.partition("://")
    try:
        return stores.from_url(
            f"{_ALIASES.get(scheme.lower(), scheme.lower())}://{rest}",
            # Servers on a private network often have no certificate; the address decides.
            client_options={"allow_http": True, "timeout": _TIMEOUT},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _TIMEOUT},
        )
    except Exception as error:
        raise BadOptions(f"address {address!r}: {_first_line(error)}") from error


@contextlib.contextmanager
def _translated(operation: str, shown: str) -> Iterator[None]:
    """Raise the errors of the library as those of `Folder`."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        raise FileNotFoundError(f"{operation} {shown}: there is no such object") from error
    except (exceptions.BaseError, OSError) as error:
        raise StoreFailed(f"{operation} {shown}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
