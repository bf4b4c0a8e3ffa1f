"""The part of a log whose records have a time in [start, end), read as if it were a log of its own.

Owns the reading of a window (`log_window`) and the choice of its records (`window_filter`). Knows
no names of windows, which belong to `broker.topics.windows`. Imported by the broker's topics and
fetches.
"""
