"""The loop modules twice: as imported (compiled where the extension was built) and as plain Python.

A stale extension would hide edits of its source, so its age is checked by `test_compiled`.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from protocol.records import encode_loops, entry_loops, record_loops

LOADED = (record_loops, entry_loops, encode_loops)


def source_of(module: ModuleType) -> Path:
    """The .py file that `module` was imported or compiled from."""
    assert module.__file__ is not None
    folder = Path(module.__file__).parent
    return folder / f"{module.__name__.rpartition('.')[2]}.py"


def interpreted(module: ModuleType) -> ModuleType:
    """`module` run from its source, whatever extension lies beside it."""
    source = source_of(module)
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_interpreted", source)
    assert spec is not None
    assert spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = plain
    spec.loader.exec_module(plain)
    assert not plain.COMPILED
    return plain


RECORD_LOOPS = {"loaded": record_loops, "interpreted": interpreted(record_loops)}
ENTRY_LOOPS = {"loaded": entry_loops, "interpreted": interpreted(entry_loops)}
ENCODE_LOOPS = {"loaded": encode_loops, "interpreted": interpreted(encode_loops)}
