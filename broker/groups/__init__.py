"""Classic consumer groups: the state machine, its timers and waiters, and committed offsets."""
