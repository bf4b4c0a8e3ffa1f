"""The part of a log whose records have a time in [start, end), read as if it were a log of its own.

Read next: `storage.window.log_window`, `storage.window.window_filter`.
"""
