"""A zip for `spark-submit --py-files`: the packages that an executor imports and may lack.

Holds this package, `protocol`, `client`, what reads a bucket (`storage`, `config`), the names that
users import, and the two pure-Python packages that `protocol` needs. Executors need pyarrow only,
and obstore where a bucket is read. Compiled loops cannot be imported from
a zip; their plain Python versions in it give the same results, slower. A script next to the zip
runs the jobs, since spark-submit takes no module for its application.

See docs/spark.md.
"""

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_OURS: Final = ("pipeline", "protocol", "client", "values", "storage", "config")
_FOUND_BY_SPARK: Final = "pyspark_tidelog.py"
_FOREIGN: Final = ("construct", "crcmod")


def write_bundle(output: str) -> int:
    """Write the zip to `output`; how many files it holds."""
    files = dict(_files())
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            archive.write(path, name)
    return len(files)


def write_launcher(output: str) -> str:
    """Write the script that runs a job under spark-submit, next to the zip `output`; its path."""
    path = Path(output).with_name(f"{Path(output).stem}-job.py")
    launch = f"{__name__.rpartition('.')[0]}.launch"
    path.write_text(
        f'"""spark-submit --py-files {Path(output).name} {path.name} JOB ..."""\n\n'
        f"import sys\n\nfrom {launch} import main\n\nsys.exit(main())\n",
        encoding="utf-8",
    )
    return str(path)


def _files() -> Iterator[tuple[str, Path]]:
    """(name in the zip, path) of all sources."""
    here = Path(__file__).resolve().parent
    # In a wheel all packages are below one package; in the checkout they are next to each other.
    prefix = "/".join(__name__.split(".")[:-2])
    prefix = f"{prefix}/" if prefix else ""
    # The names that users import: the zip comes first on the path, before an installed package.
    front = here.parent if prefix else here.parent / "tidelog"
    for name in ("__init__.py", "spark.py"):
        yield f"tidelog/{name}", front / name
    # Spark finds the format by this module where the zip is in PYTHONPATH.
    yield _FOUND_BY_SPARK, front.parent / _FOUND_BY_SPARK
    for package in _OURS:
        for path in (here.parent / package).rglob("*.py"):
            yield f"{prefix}{path.relative_to(here.parent)}", path
    for package in _FOREIGN:
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            home = Path(spec.origin).parent
            for path in home.rglob("*.py"):
                yield str(path.relative_to(home.parent)), path
