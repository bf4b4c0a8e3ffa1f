"""The console's own users: a file of names and hashes, and the check of a password.

A line is ``name:scrypt:COST:SALT:HASH`` in hexadecimal; ``tidelog console --add-user`` writes it.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

COST: Final = 2**14
TRIES: Final = 5
TRIES_S: Final = 60.0
"""At most so many wrong passwords from an address in so many seconds."""

_BLOCK: Final = 8
_MEMORY: Final = 64 * 1024 * 1024
_ADDRESSES_MAX: Final = 10_000


def hash_password(password: str) -> str:
    """The part of a line after the name."""
    salt = secrets.token_bytes(16)
    return f"scrypt:{COST}:{salt.hex()}:{_scrypt(password, salt, COST).hex()}"


def _scrypt(password: str, salt: bytes, cost: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=_BLOCK, p=1, maxmem=_MEMORY, dklen=32
    )


def is_password(stored: str, password: str) -> bool:
    """Whether a password is the one of a stored hash."""
    try:
        kind, cost, salt, digest = stored.split(":")
        if kind != "scrypt":
            return False
        found = _scrypt(password, bytes.fromhex(salt), int(cost))
        return hmac.compare_digest(found, bytes.fromhex(digest))
    except ValueError:
        return False


def read_users(path: Path) -> dict[str, str]:
    """Name to hash of every line.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is none; the message names it.
    """
    users = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, stored = line.partition(":")
        if not (name and colon and stored.startswith("scrypt:") and stored.count(":") == 3):
            raise ValueError(f"{path}:{number} is no user: add users with --add-user NAME")
        users[name] = stored
    return users


def add_user(path: Path, name: str, password: str) -> None:
    """Write a user into the file, which only its owner may read; a user of the name is replaced.

    Raises:
        OSError: the file cannot be written.
        ValueError: the name cannot be in the file.
    """
    if not name or any(character in name for character in ":\n\r#"):
        raise ValueError(f"{name!r} is no name of a user: leave out colons, # and line ends")
    users = read_users(path) if path.exists() else {}
    users[name] = hash_password(password)
    text = "".join(f"{one}:{stored}\n" for one, stored in sorted(users.items()))
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    temporary.replace(path)


class Logins:
    """Checks names and passwords, and slows guesses down. Used by one thread at a time."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """Know `users`, names to hashes."""
        self._users = users
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._no_user = hash_password(secrets.token_hex())
        self._right: dict[tuple[str, str], bool] = {}
        self._pepper = secrets.token_bytes(16)

    def is_blocked(self, address: str) -> bool:
        """Whether an address has to wait, after too many wrong passwords."""
        since = time.monotonic() - TRIES_S
        recent = [at for at in self._failures.get(address, ()) if at > since]
        return len(recent) >= TRIES

    def is_known(self, name: str, password: str) -> bool | None:
        """The answer without a slow hash where this password has been right before."""
        return self._right.get((name, self._digest(password)))

    def check(self, address: str, name: str, password: str) -> bool:
        """Whether it is a user's password; slow on purpose, also for names that do not exist."""
        is_right = is_password(self._users.get(name, self._no_user), password)
        if is_right and name in self._users:
            self._right[name, self._digest(password)] = True
            return True
        since = time.monotonic() - TRIES_S
        recent = [at for at in self._failures.get(address, ()) if at > since]
        self._failures[address] = [*recent, time.monotonic()]
        while len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return False

    def _digest(self, password: str) -> str:
        return hashlib.blake2b(password.encode(), key=self._pepper).hexdigest()
