"""The checks of auxiliary indexes, by the suffix of their files, for `fsck` and `dump-segment`.

A reader parses the bytes of a file. Its result describes itself and judges its entries, or is the
`IndexProblem` of a file that cannot be read. The readers share no code with the engine's
(`storage.segment.auxiliary_index`), because the same mistake in both would not show.
"""

from typing import Final

from storage.audit.density import read_density
from storage.disk.file_names import DENSITY_SUFFIX

AUXILIARY_READERS: Final = {DENSITY_SUFFIX: read_density}
