"""Wall clock, monotonic clock and timers behind one seam, and how far the wall clock is trusted.

Owns time for the whole broker. `trusted_time` is the pure model, `trusted_clock` samples it. Knows
nothing of how the time is used. Everything in `broker` may import it, and `cli.server` and
`tidelog.testing` for the clock of tests.
"""
