"""Spans of time for tests. Storage takes its time as a parameter, so a test's clock is a number."""

DAY_MS = 86_400_000
