"""The checks of auxiliary indexes, by the suffix of their files, for `fsck` and `dump-segment`.

A reader parses the bytes of a file. Its result describes itself and judges its entries, or is the
`IndexProblem` of a file that cannot be read. The readers share no code with the engine's
(`storage.segment.auxiliary_index`), because the same mistake in both would not show.
"""

from collections.abc import Callable, Mapping
from typing import Final

from storage.audit.density import DensityFile, read_density
from storage.audit.findings import IndexProblem
from storage.audit.time_counts import CountsFile, read_counts
from storage.disk.file_names import DENSITY_SUFFIX, TIME_COUNTS_SUFFIX

AuxiliaryFile = DensityFile | CountsFile

AUXILIARY_READERS: Final[Mapping[str, Callable[[bytes], AuxiliaryFile | IndexProblem]]] = {
    DENSITY_SUFFIX: read_density,
    TIME_COUNTS_SUFFIX: read_counts,
}
