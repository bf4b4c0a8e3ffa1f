"""The budget for decompressing the records of one request, in all and in the loop thread.

Owns the budget that goes with a request through the appends of its partitions. A batch of two
kilobytes may hold 64 MiB, and a request thousands of batches. Each batch is refused when the budget
of the request is used up, whether those before it were stored or refused.

While the budget is *at once*, it also bounds the work in the thread that serves all requests. Work
beyond that raises `TooMuchAtOnce`, having changed nothing, and has to be done `aside`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.errors import DecompressionLimitExceeded
from protocol.records.checksums import Buffer
from protocol.records.compression import PIECES_MAX
from storage.errors import MessageTooLarge, TooMuchAtOnce

AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one request may decompress in the loop thread: 4 ms with zstd, 13 ms with gzip."""

AT_ONCE_PIECES: Final = 4096
"""Members or blocks of one batch that are processed there: 20 ms at most."""

REWRITTEN_AT_ONCE_BYTES: Final = 64 * 1024
"""Bytes that are recompressed or converted there: gzip makes 30 MB a second."""


class Opening:
    """The budget of one request.

    Attributes:
        is_used: whether something was decompressed since it was made or renewed.
    """

    __slots__ = ("_at_once", "_is_aside", "_left", "_total", "is_used")

    def __init__(self, total_bytes: int, *, at_once: bool = True) -> None:
        """Decompress `total_bytes` at most; with `at_once` the work begins in the loop thread."""
        self._total = total_bytes
        self._left = total_bytes
        self.is_used = False
        self._at_once = AT_ONCE_BYTES
        self._is_aside = not at_once

    def renew(self) -> None:
        """Begin again, for the next request."""
        self.is_used = False
        self._left = self._total
        self._at_once = AT_ONCE_BYTES

    def aside(self) -> Opening:
        """The same budget, for another thread until `return_to_loop`."""
        self._is_aside = True
        return self

    def return_to_loop(self) -> None:
        """The other thread has finished: the limits of the loop thread are in force again."""
        self._is_aside = False

    def open(self, cap: int, decompress: Callable[[int, int], Buffer]) -> Buffer:
        """The result of `decompress(max bytes, max pieces)` for a batch of at most `cap` bytes.

        Raises:
            MessageTooLarge: the request has too little budget left for it.
            TooMuchAtOnce: the budget is sufficient, but not in this thread.
            DecompressionLimitExceeded: the batch has more than `cap` bytes.
        """
        self.is_used = True
        limit = min(cap, self._left)
        if limit <= 0:
            raise self._used_up()
        if self._is_aside:
            try:
                clear = decompress(limit, PIECES_MAX)
            except DecompressionLimitExceeded:
                self._left -= limit
                if limit < cap:
                    raise self._used_up() from None
                raise
        else:
            try:
                clear = decompress(min(limit, self._at_once), AT_ONCE_PIECES)
            except DecompressionLimitExceeded:
                raise TooMuchAtOnce from None
            self._at_once -= len(clear)
        self._left -= len(clear)
        return clear

    def check_rewrite(self, size_bytes: int) -> None:
        """Allow `size_bytes` to be recompressed or converted here. Raises TooMuchAtOnce."""
        if not self._is_aside and size_bytes > REWRITTEN_AT_ONCE_BYTES:
            raise TooMuchAtOnce

    def _used_up(self) -> MessageTooLarge:
        return MessageTooLarge(
            f"the batches of this request decompress to more than {self._total} bytes "
            "(queued.max.decompressed.bytes); send fewer at a time"
        )
