"""What holds for every test.

Hypothesis fails an example that takes longer than 200 ms, unless its deadline is off. On a machine
that is busy with other things any example may, and a test never asserts on small times.
"""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
