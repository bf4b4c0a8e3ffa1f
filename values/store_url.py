"""The address of an object store: which texts it may be, and what of it may be shown."""

import re
from typing import Final
from urllib.parse import urlsplit

_BUCKETS: Final = ("s3", "gs", "az")
_SCHEMES: Final = (*_BUCKETS, "file", "memory")
"""`memory` is for tests: a store that ends with its process."""

_CREDENTIALS: Final = re.compile(r"(?<=://).*(?=@)|(?<=[?#]).*")


def check_store_url(value: object) -> str | None:
    """What is wrong with the address, in words; None when nothing is, or when it is empty."""
    if value == "":
        return None
    parts = urlsplit(str(value))
    if parts.scheme not in _SCHEMES:
        return f"not an address that begins with {', '.join(f'{one}:' for one in _SCHEMES)}"
    if parts.scheme in _BUCKETS and not parts.netloc:
        return f"it names no bucket; give {parts.scheme}://BUCKET/PREFIX"
    if parts.scheme == "file" and (parts.netloc or len(parts.path) < 2):
        return "a folder is file:///DIR, with an absolute path"
    if parts.query or parts.fragment or not {"@", ":"}.isdisjoint(parts.netloc):
        return "credentials and options belong into the environment, not into the address"
    return None


def without_credentials(value: str) -> str:
    """The value; of an address, without what may be a password or a token."""
    return _CREDENTIALS.sub("...", value) if "://" in value else value
