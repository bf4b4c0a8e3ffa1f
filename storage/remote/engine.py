"""Object stores through obstore: S3 and what speaks its protocol, GCS, Azure, a folder, memory.

Owns the address of a store, and the deadlines of its requests. Credentials and endpoints come from
the environment, as users of these services know it (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
`GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_KEY`, ...). This module reads one thing there:
whether S3 is spoken over TLS. Then payloads are not signed. Their SHA-256 is 70 % of the CPU of a
PUT, in stretches of two milliseconds for which the threads of requests wait, and says nothing more:
TLS protects the bytes on their way, and each object is read back and compared.

A small object is one conditional PUT. A large one is sent in parts, for which no store has a
condition; its name was never used before, so none is needed. The library repeats a request whose
answer was lost, so an upload may meet its own object: ObjectExists means "look", not "lost".

Reading many small objects at once (`get_all`) has threads for that one call, which end with it. The
pools of `broker.threads` cannot serve here: the caller is itself a call in one of them, which must
not wait for others of its pool, or a command without a broker. The library's own way to have many
requests at once needs an event loop, which `storage` does not know.

`obstore` is an extra, `pip install tidelog[remote]`, and imported at the first use.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from protocol.records.checksums import crc32c
from storage.disk.files import Bytes
from storage.errors import ObjectExists, ObjectMissing, StoreFailed
from storage.remote.folder import Folder, FolderUpload, is_unfinished
from storage.remote.object_store import ObjectStore, ObjectUpload, StoredObject
from values.store_url import check_store_url, without_credentials

PART_BYTES: Final = 8 * 1024 * 1024
"""A larger object is sent in parts of this size; a part is what an upload has in memory."""

_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
REQUEST_TIMEOUT: Final = timedelta(seconds=20)
"""The deadline of one request, an answer of many megabytes included."""

_UNSIGNED: Final = "AWS_UNSIGNED_PAYLOAD"
_ENDPOINTS: Final = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")

_CODE: Final = re.compile("<Code>([^<]+)</Code>")
_MESSAGE: Final = re.compile("<Message>([^<]+)</Message>")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_CREDENTIALS: Final = "look at the credentials in the environment, and at what they may do"
_CURES: Final = {
    "169.254.169.254": "the environment has no credentials: s3:// takes AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY",
    **dict.fromkeys(_NO_BUCKET, "create the bucket, or correct its name in the URL"),
    "403 Forbidden": _CREDENTIALS,
    "401 Unauthorized": _CREDENTIALS,
}
"""What to do about an error, by words of its text."""

_RETRIES: Final = 2
_GETS_AT_ONCE: Final = 16


class BadStoreUrl(ValueError):
    """The address of a store cannot be used; the sentence says why."""


class ExtraMissing(BadStoreUrl):
    """The library for object stores is not installed."""


def open_store(url: str, cluster_id: str) -> ObjectStore:
    """The store at `url`, below the prefix of the cluster. No request is made.

    Raises:
        BadStoreUrl: the address cannot be used, or the library for it is missing.
    """
    return _open(url, cluster_id)


def list_clusters(url: str) -> list[str]:
    """The ids of the clusters that have something in the store at `url`, sorted.

    A folder that does not exist has none, and is not made. Raises BadStoreUrl, StoreFailed.
    """
    parts = urlsplit(url)
    if check_store_url(url) is None and parts.scheme == "file" and not Path(parts.path).is_dir():
        return []
    return _open(url, "").folders()


def _open(url: str, cluster_id: str) -> "_Engine":
    problem = check_store_url(url)
    if problem is not None:
        raise BadStoreUrl(f"{without_credentials(url)}: {problem}")
    try:
        from obstore import store as stores
    except ImportError as error:
        raise ExtraMissing("the extra is missing: pip install 'tidelog[remote]'") from error
    parts = urlsplit(url)
    prefix = "/".join(part for part in (parts.path.strip("/"), cluster_id) if part)
    try:
        if parts.scheme == "memory":
            return _Engine(stores.MemoryStore(), prefix=f"{cluster_id}/")
        if parts.scheme == "file":
            folder = Path(parts.path) / cluster_id
            store = stores.LocalStore(folder, automatic_cleanup=True, mkdir=True)
            return _FolderEngine(store, Folder(str(folder)))
        config: Any = signing_options(parts.scheme, os.environ)
        return _Engine(
            stores.from_url(
                f"{parts.scheme}://{parts.netloc}/{prefix}",
                config=config,
                client_options={
                    "connect_timeout": _CONNECT_TIMEOUT,
                    "timeout": REQUEST_TIMEOUT,
                    # A server for tests on this machine has no certificate.
                    "allow_http": True,
                },
                retry_config={"max_retries": _RETRIES, "retry_timeout": REQUEST_TIMEOUT},
            )
        )
    except Exception as error:
        raise BadStoreUrl(f"{type(error).__name__}: {error}") from error


def signing_options(scheme: str, environment: Mapping[str, str]) -> dict[str, bool]:
    """The library's options for signatures of payloads, where the environment says nothing."""
    names = {name.upper(): value for name, value in environment.items()}
    endpoints = (names.get(name, "") for name in _ENDPOINTS)
    is_plain = any(endpoint.lower().startswith("http:") for endpoint in endpoints)
    if scheme != "s3" or is_plain or _UNSIGNED in names:
        return {}
    return {"unsigned_payload": True}


@contextmanager
def _translated(operation: str, key: str) -> Iterator[None]:
    """Raise the errors of the library as errors of storage."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise ObjectExists(f"{operation} {key}: there is such an object") from error
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        if any(code in str(error) for code in _NO_BUCKET):
            raise StoreFailed(f"{operation} {key}: {describe_error(error)}") from error
        raise ObjectMissing(f"{operation} {key}: there is no such object") from error
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise StoreFailed(f"{operation} {key}: {describe_error(error)}") from error


def describe_error(error: Exception) -> str:
    """One line: what was asked, what the store says, and what to do about it if that is known.

    The answer of a store has what was signed as well; only its code and its sentence are taken.
    """
    from html import unescape  # its table of names is for answers that are errors

    text = str(error)
    line = next(iter(text.splitlines()), type(error).__name__)
    found = (_CODE.search(text), _MESSAGE.search(text))
    said = [unescape(match[1]) for match in found if match]
    parts = [line.partition("<?xml")[0].rstrip(": "), *said] if said else [line.rstrip(": ")]
    cure = next((cure for words, cure in _CURES.items() if words in text), None)
    return ": ".join(parts) + (f" ({cure})" if cure else "")


class _Engine:
    """One store of the library; `prefix` is put before the names where the store has none."""

    def __init__(self, store: Any, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix

    def begin_put(self, key: str, size: int) -> ObjectUpload:
        """See `ObjectStore.begin_put`."""
        return _Upload(self._store, self._prefix + key, size)

    def put_new(self, key: str, *parts: Bytes) -> None:
        """See `ObjectStore.put_new`."""
        _put_new(self._store, self._prefix + key, parts)

    def get(self, key: str, start: int, end: int) -> bytes:
        """See `ObjectStore.get`."""
        return bytes(self._get(key, start, end))

    def crc32c_of(self, key: str, start: int, end: int, crc: int = 0) -> int:
        """See `ObjectStore.crc32c_of`."""
        return crc32c(self._get(key, start, end), crc)

    def has(self, key: str, parts: Sequence[Bytes]) -> bool:
        """See `ObjectStore.has`."""
        size = sum(map(len, parts))
        if self.size_of(key) != size:
            return False
        try:
            found = self._get(key, 0, size) if size else b""
        except ObjectMissing:
            return False
        ends = accumulate(map(len, parts))
        # One memcmp a part: `==` of the library's bytes takes twenty times as long.
        return all(
            bytes(part).startswith(found[end - len(part) : end])
            for part, end in zip(parts, ends, strict=True)
        )

    def _get(self, key: str, start: int, end: int) -> Any:
        """The bytes where the library has them, of which a slice is no copy."""
        import obstore

        with _translated("GET", key):
            data = obstore.get_range(self._store, self._prefix + key, start=start, end=end)
        if len(data) != end - start:
            raise ObjectMissing(f"GET {key}: it ends at byte {start + len(data)}, not at {end}")
        return data

    def get_all(self, wanted: Sequence[tuple[str, int]]) -> Sequence[bytes | None]:
        """See `ObjectStore.get_all`."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_GETS_AT_ONCE) as pool:
            return list(pool.map(self._get_whole, wanted))

    def _get_whole(self, wanted: tuple[str, int]) -> bytes | None:
        key, size = wanted
        try:
            return self.get(key, 0, size) if size else b""
        except ObjectMissing:
            return None

    def size_of(self, key: str) -> int | None:
        """See `ObjectStore.size_of`."""
        import obstore

        try:
            with _translated("HEAD", key):
                return int(obstore.head(self._store, self._prefix + key)["size"])
        except ObjectMissing:
            return None

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        import obstore

        try:
            with _translated("DELETE", key):
                obstore.delete(self._store, self._prefix + key)
        except ObjectMissing:
            return

    def folders(self) -> list[str]:
        """The first parts of all names, sorted."""
        import obstore

        with _translated("LIST", ""):
            return sorted(obstore.list_with_delimiter(self._store)["common_prefixes"])

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """See `ObjectStore.list_objects`."""
        import obstore

        with _translated("LIST", prefix):
            for chunk in obstore.list(self._store, self._prefix + prefix or None):
                for found in chunk:
                    yield StoredObject(
                        found["path"].removeprefix(self._prefix),
                        found["size"],
                        int(found["last_modified"].timestamp() * 1000),
                    )

    def list_unfinished(self) -> Iterator[StoredObject]:
        """See `ObjectStore.list_unfinished`."""
        return iter(())


class _FolderEngine(_Engine):
    """A folder, whose objects are on the disk when they count (`storage.remote.folder`)."""

    def __init__(self, store: Any, folder: Folder) -> None:
        super().__init__(store)
        self._folder = folder

    def begin_put(self, key: str, size: int) -> ObjectUpload:
        """See `ObjectStore.begin_put`."""
        return _FolderPut(self._folder, key)

    def put_new(self, key: str, *parts: Bytes) -> None:
        """See `ObjectStore.put_new`."""
        put = _FolderPut(self._folder, key)
        try:
            for part in parts:
                put.write(part)
        except StoreFailed:
            put.abort()
            raise
        put.finish()

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        if is_unfinished(key):
            with _translated("DELETE", key):
                self._folder.remove_unfinished(key)
            return
        self._folder.forget(key)
        super().delete(key)

    def list_unfinished(self) -> Iterator[StoredObject]:
        """See `ObjectStore.list_unfinished`."""
        with _translated("LIST", ""):
            yield from self._folder.unfinished()


class _FolderPut:
    """An object of a folder on its way; the file beside it is made at the first bytes."""

    def __init__(self, folder: Folder, key: str) -> None:
        self._folder = folder
        self._key = key
        self._upload: FolderUpload | None = None

    def write(self, data: Bytes) -> None:
        """See `ObjectUpload.write`."""
        with _translated("PUT", self._key):
            self._begun().write(data)

    def finish(self) -> None:
        """See `ObjectUpload.finish`."""
        with _translated("PUT", self._key):
            self._begun().finish()

    def abort(self) -> None:
        """See `ObjectUpload.abort`."""
        if self._upload is not None:
            with _translated("PUT", self._key):
                self._upload.abort()

    def _begun(self) -> FolderUpload:
        if self._upload is None:
            self._upload = self._folder.begin(self._key)
        return self._upload


def _put_new(store: Any, key: str, parts: Sequence[Bytes]) -> None:
    """Create an object. Its parts are not joined: a copy of megabytes would hold up all threads."""
    import obstore

    with _translated("PUT", key):
        # Several requests would put it together without the condition.
        obstore.put(store, key, list(parts), mode="create", use_multipart=False)


class _Upload:
    """One PUT, or the parts of one."""

    def __init__(self, store: Any, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._is_small = size <= PART_BYTES
        self._parts: list[Bytes] = []
        self._writer: Any = None

    def write(self, data: Bytes) -> None:
        """See `ObjectUpload.write`."""
        if self._is_small:
            self._parts.append(data)
            return
        import obstore

        with _translated("PUT", self._key):
            if self._writer is None:
                self._writer = obstore.open_writer(
                    self._store, self._key, buffer_size=PART_BYTES, max_concurrency=1
                )
            self._writer.write(bytes(data))

    def finish(self) -> None:
        """See `ObjectUpload.finish`."""
        if self._is_small:
            _put_new(self._store, self._key, self._parts)
        elif self._writer is not None:
            with _translated("PUT", self._key):
                self._writer.close()

    def abort(self) -> None:
        """See `ObjectUpload.abort`: parts without an end are the bucket's to expire."""
        self._parts.clear()
        self._writer = None
