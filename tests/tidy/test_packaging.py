"""The wheel puts one package into site-packages, compiled, and an editable install is a plain path.

Beside it is the module by which Spark finds the data source.

Builds happen in a copy of the tree, so that the checkout stays clean, and without network: the
build tools and the dependencies are those of the running environment.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "broker",
    "cli",
    "client",
    "config",
    "console",
    "pipeline",
    "protocol",
    "storage",
    "tidelog",
    "values",
]
FOUND_BY_SPARK = "pyspark_tidelog.py"
LOOPS = ["record_loops", "entry_loops", "encode_loops"]
ALL_LOOPS = [f"protocol/records/{name}" for name in LOOPS] + [
    "pipeline/records/arrow_loops",
    "storage/disk/file_end",
    "storage/append/plain",
    "storage/segment/facts",
    "storage/segment/feed",
    "storage/log/reader",
    "storage/log/lane",
    "broker/net/request_fields",
    "broker/net/produce_lane",
    "broker/net/fetch_lane",
    "broker/net/receive",
    "broker/net/connection",
    "broker/net/lane_connection",
]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done


def copy_tree(target: Path) -> list[str]:
    """Copy what a distribution is made of; returns the packages' files, as in the checkout."""
    wanted = [*PACKAGES, FOUND_BY_SPARK, "pyproject.toml", "setup.py", "README.md", "LICENSE"]
    wanted += ["MANIFEST.in"]  # has the pages of docs for a distribution of the source
    wanted += ["docs/*.md", "docs/how-to"]
    listed = run("git", "ls-files", "-co", "--exclude-standard", *wanted, cwd=ROOT).stdout.split()
    files = [name for name in listed if (ROOT / name).is_file()]
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in files:
            archive.add(ROOT / name, name)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(target, filter="data")
    return [name for name in files if "/" in name and not name.startswith("docs/")]


def build(hook: str, tree: Path, **environment: str) -> tuple[Path, str]:
    """(the wheel, the build's output) of one PEP 517 hook, run in `tree`."""
    code = f"from setuptools import build_meta as b; b.{hook}('dist')"
    output = run(sys.executable, "-c", code, cwd=tree, **environment)
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel, output.stdout + output.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    tree = tmp_path_factory.mktemp("tree")
    files = copy_tree(tree)
    return build("build_wheel", tree)[0], files


def test_wheel_holds_one_name_and_every_file(wheel: tuple[Path, list[str]]) -> None:
    path, files = wheel
    names = [name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"tidelog", FOUND_BY_SPARK}
    compiled = {name for name in names if name.endswith(SUFFIX)}
    assert compiled == {f"tidelog/{name}{SUFFIX}" for name in ALL_LOOPS}
    shipped = set(names) - compiled
    expected = {
        name if name.startswith("tidelog/") else f"tidelog/{name}"
        for name in files
        if name.endswith(
            (".py", "py.typed", ".toml", ".properties", ".pxd", ".js", ".css", ".html", ".svg")
        )
    }
    pages = {name for name in shipped if name.endswith(".md")}
    assert pages == {
        f"tidelog/{path.relative_to(ROOT)}"
        for pattern in ("*.md", "how-to/*.md")
        for path in (ROOT / "docs").glob(pattern)
    }
    assert shipped - pages == {*expected, FOUND_BY_SPARK}
    found_by_spark = zipfile.ZipFile(path).read(FOUND_BY_SPARK).decode()
    assert "from tidelog.pipeline.spark.source import" in found_by_spark
    assert not [name for name in names if "simulated" in name or "power_loss" in name]


def test_wheel_names_one_top_level_and_a_script_inside_it(wheel: tuple[Path, list[str]]) -> None:
    archive = zipfile.ZipFile(wheel[0])
    info = next(name for name in archive.namelist() if name.endswith("/METADATA")).split("/")[0]
    assert archive.read(f"{info}/top_level.txt").decode().split() == ["tidelog"]
    assert "tidelog = tidelog." in archive.read(f"{info}/entry_points.txt").decode()


def install(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """(python, site-packages) of a new environment that holds the wheel."""
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", code, cwd=folder).stdout.strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The dependencies come from the running environment, as a plain path: no .pth inside it is
    # followed, so the checkout itself stays out of reach.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python, site


def test_wheel_imports_compiled_from_a_clean_environment(
    wheel: tuple[Path, list[str]], tmp_path: Path
) -> None:
    python, _ = install(wheel[0], tmp_path)
    code = (
        "import importlib.util, sys\n"
        "from tidelog.protocol.records import encode_loops, entry_loops, record_loops\n"
        "from tidelog.protocol.errors import InvalidRecords\n"
        "from tidelog.storage.append.plan import plan_append\n"
        "for loops in (record_loops, entry_loops, encode_loops):\n"
        "    assert loops.COMPILED and not loops.__file__.endswith('.py'), loops.__file__\n"
        "    assert loops.__name__.startswith('tidelog.protocol.records.'), loops.__name__\n"
        "try:\n"
        "    record_loops.check_records(b'x', 0, 1, 1, 0, 0, 0, 0, False)\n"
        "except InvalidRecords:\n"
        "    pass\n"
        "for name in ('broker', 'client', 'config', 'protocol', 'storage', 'values'):\n"
        "    assert importlib.util.find_spec(name) is None, name\n"
        "    assert name not in sys.modules, name\n"
    )
    run(python, "-c", code, cwd=tmp_path)


def test_wheel_works_beside_others_of_the_same_names(
    wheel: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """PyPI has a `config` and a `broker` of its own; so have the folders of many a web project."""
    python, site = install(wheel[0], tmp_path)
    for name in ("config", "broker"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise ImportError('a stranger was imported')\n")
    code = (
        "from tidelog.testing import running_broker\n"
        "import asyncio\n"
        "from tidelog import Consumer, Producer\n"
        "async def main(bootstrap):\n"
        "    async with Producer(bootstrap) as producer:\n"
        "        await producer.send('t', b'v', timestamp_ms=5)\n"
        "    async with Consumer('t', bootstrap=bootstrap, start='earliest') as consumer:\n"
        "        async for record in consumer:\n"
        "            return record\n"
        "with running_broker() as broker:\n"
        "    record = asyncio.run(main(broker.bootstrap))\n"
        "print(record.value.decode(), record.timestamp_ms)\n"
    )
    assert run(python, "-c", code, cwd=tmp_path).stdout == "v 5\n"
    assert "tidelog" in run(python, "-m", "tidelog", "version", cwd=tmp_path).stdout


def test_wheel_from_the_source_distribution_is_the_same(
    wheel: tuple[Path, list[str]], tmp_path: Path
) -> None:
    copy_tree(tmp_path / "tree")
    code = "from setuptools import build_meta as b; print(b.build_sdist('dist'))"
    name = run(sys.executable, "-c", code, cwd=tmp_path / "tree").stdout.splitlines()[-1]
    with tarfile.open(tmp_path / "tree" / "dist" / name) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again, _ = build("build_wheel", source)

    def shipped(path: Path) -> set[str]:
        return {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}

    assert shipped(again) == shipped(wheel[0])


def test_wheel_without_a_compiler_is_pure_python_and_says_so(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    # A compiler that always fails stands for one that cannot build extensions here.
    path, output = build("build_wheel", tmp_path, CC="false")
    names = zipfile.ZipFile(path).namelist()
    assert "tidelog/protocol/records/record_loops.py" in names
    assert not any(name.endswith(SUFFIX) for name in names)
    assert output.count("all compiled modules will run as plain Python") == 1


def test_editable_install_is_a_path_and_compiles_in_place(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    path, _ = build("build_editable", tmp_path)
    archive = zipfile.ZipFile(path)
    (pointer,) = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert archive.read(pointer).decode().strip() == str(tmp_path)
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from protocol.records import record_loops\n"
        "assert record_loops.COMPILED and record_loops.__name__ == 'protocol.records.record_loops'"
    )
    run(sys.executable, "-P", "-c", code, cwd=tmp_path)
    for name in ALL_LOOPS:
        assert (tmp_path / f"{name}{SUFFIX}").is_file()


@pytest.mark.parametrize(
    "statement", ["import storage.log.log", "import os, config", "import storage"]
)
def test_build_refuses_the_import_it_cannot_rename(statement: str) -> None:
    code = f"import setup; setup.moved_source({statement!r}, 'x.py')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "x.py:1: write `from ... import ...`" in done.stderr


def test_build_renames_imports_only() -> None:
    source = (
        '"""from storage import log is what prose may say."""\n'
        "if True:\n"
        "    from storage.log.log import (\n        Log,\n    )\n"
        "from storages import x\n"
        "from cython.cimports.protocol.records.record_loops import RecordWalk\n"
        "from cython.cimports.libc.string import memcpy\n"
        "import zlib; from protocol import errors\n"
    )
    code = f"import setup; print(setup.moved_source({source!r}, 'x.py'), end='')"
    moved = run(sys.executable, "-c", code, cwd=ROOT).stdout
    assert moved == source.replace("from storage.log.log", "from tidelog.storage.log.log").replace(
        "; from protocol", "; from tidelog.protocol"
    ).replace("cimports.protocol", "cimports.tidelog.protocol")


def test_build_renames_the_imports_of_declarations() -> None:
    source = (
        "from protocol.records.record_loops cimport RecordWalk\n"
        "from libc.string cimport memcpy\n"
        "from storages cimport x\n"
        "    # from protocol.records\n"
    )
    code = f"import setup; print(setup.moved_declarations({source!r}), end='')"
    moved = run(sys.executable, "-c", code, cwd=ROOT).stdout
    assert moved == source.replace("from protocol.records.r", "from tidelog.protocol.records.r")
