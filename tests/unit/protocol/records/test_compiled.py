"""The compiled loops are those of the sources beside them, and run without Cython as well."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from broker.net import fetch_lane, produce_lane, request_fields
from protocol.records import record_loops
from storage.append import plain
from storage.log import lane
from storage.segment import feed
from tests.unit.protocol.records.flavours import LOADED, source_of

ROOT = Path(__file__).parents[4]


WAYS = (plain, feed, lane, request_fields, produce_lane, fetch_lane)
"""What else is compiled: the lanes and what they share with the general way."""


@pytest.mark.parametrize("module", [*LOADED, *WAYS], ids=lambda module: str(module.__name__))
def test_extension_is_not_older_than_its_source(module: ModuleType) -> None:
    if not module.COMPILED:
        pytest.skip("not compiled here; the plain source is what runs")
    built = Path(str(module.__file__))
    own = source_of(module)
    declarations = {own.with_suffix(".pxd"), source_of(record_loops).with_suffix(".pxd")}
    for source in (own, *filter(Path.exists, declarations)):
        assert built.stat().st_mtime >= source.stat().st_mtime, (
            f"{built.name} is older than {source.name}: run `make build-ext`"
        )


def test_loops_run_where_neither_cython_nor_an_extension_is() -> None:
    code = (
        "import importlib.util, sys\n"
        "sys.modules['cython'] = None\n"
        "for name in ('record_loops', 'entry_loops', 'encode_loops'):\n"
        "    spec = importlib.util.spec_from_file_location(\n"
        "        'protocol.records.' + name, 'protocol/records/' + name + '.py')\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    sys.modules[spec.name] = module\n"
        "    spec.loader.exec_module(module)\n"
        "    assert module.COMPILED is False\n"
        "from protocol.records.builder import build_batch\n"
        "from protocol.records.record import Record\n"
        "from protocol.records.scan import iter_records\n"
        "records = [Record(0, 5, b'k', b'v', (('h', b'x'),))]\n"
        "assert list(iter_records(build_batch(records))) == records\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
