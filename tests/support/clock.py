"""A clock that stands still until a test moves it; storage takes its time as a parameter."""

DAY_MS = 86_400_000


class StillClock:
    """Milliseconds since the epoch, as far as the test is concerned."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def advance(self, ms: int) -> int:
        """Move the clock, also backwards; the new time."""
        self.now_ms += ms
        return self.now_ms
