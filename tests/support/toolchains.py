"""What the compatibility tests and the benchmarks need from package registries, resolved on demand.

Every function returns a path that is ready to use and is idempotent: the first call resolves
through the ordinary client of a registry (mvn, npm, pip, go, apt-get), later calls find a mark
beside the result. Everything lands in `.cache/toolchains` of the checkout, which git ignores and
which may be deleted at any time. A file lock per result lets parallel test workers share it.

What is absent and cannot be installed here is a `MissingTool`, whose message is one sentence that
says what to install. Nothing in this module knows Kafka; see `tests.support.kafka_peer` for that.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "toolchains"
INSTALL_TIMEOUT_S = 900

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = """
<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}</dependency>"""
_SETTINGS = """<settings><mirrors><mirror>
<id>only</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors></settings>
"""
# Maven resets the terminal's colours even with the option to use none.
_TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class MissingTool(Exception):
    """A program that this machine lacks; the message says how to get it."""


class InstallFailed(Exception):
    """A registry client ended with an error; the message carries the end of its output."""


def find_program(name: str, cure: str) -> str:
    """The path of program `name` on PATH.

    Raises:
        MissingTool: it is not there; `cure` tells the reader what to install.
    """
    found = shutil.which(name)
    if found is None:
        raise MissingTool(f"{name} is not installed: {cure}")
    return found


def java() -> str:
    """The `java` launcher."""
    return find_program("java", "install a JDK 17 or newer (Debian: apt-get install default-jdk)")


def debian_program(name: str, package: str) -> str:
    """The path of a program that Debian packages; installed through apt-get when we are root."""
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _run(["apt-get", "update", "-q"])
        _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", package])
    return find_program(name, f"apt-get install {package}")


def maven_jars(*coordinates: str) -> Path:
    """A folder with jars, `group:artifact:version[:classifier]`, and what they need to run."""
    maven = find_program("mvn", "install Apache Maven (Debian: apt-get install maven)")

    def resolve(folder: Path) -> None:
        dependencies = "".join(_dependency(*name.split(":")) for name in coordinates)
        (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        quiet = [maven, "-q", "-B", "-Dstyle.color=never"]
        # Old artifacts name repositories that no longer exist: ask the default one for everything.
        url = _run(
            [
                *quiet,
                "help:evaluate",
                "-Dexpression=project.repositories[0].url",
                "-DforceStdout",
            ],
            cwd=folder,
        )
        plain_url = _TERMINAL_COLOURS.sub("", url).strip()
        (folder / "settings.xml").write_text(_SETTINGS.format(url=plain_url))
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*quiet, "-s", "settings.xml", *copy, "-DoutputDirectory=jars"], cwd=folder)

    return _once("maven", coordinates, resolve) / "jars"


def _dependency(group: str, artifact: str, version: str, classifier: str = "") -> str:
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    return _DEPENDENCY.format(group, artifact, version, kind)


def java_classes(sources: Sequence[Path], jars: Path) -> Path:
    """A folder with the `.java` files `sources` compiled against the jars of a folder."""
    compiler = find_program("javac", "install a JDK, not only a JRE (default-jdk)")

    def compile_sources(folder: Path) -> None:
        options = ["-nowarn", "-Xlint:none", "-cp", f"{jars}/*", "-d", str(folder)]
        _run([compiler, *options, *(str(source) for source in sources)])

    texts = [source.read_text() for source in sources]
    return _once("classes", (str(jars), *texts), compile_sources)


def node_modules(*packages: str) -> Path:
    """A folder in which node resolves `packages` (each `name@version`)."""
    npm = find_program("npm", "install Node.js 20 or newer with npm")

    def install(folder: Path) -> None:
        (folder / "package.json").write_text('{"name": "clients", "private": true}')
        # No package here needs its native part, and compiling them is what fails on new Nodes.
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
        _run([npm, "install", *quiet, *packages], cwd=folder)

    return _once("npm", packages, install)


def python_with(version: str, *requirements: str) -> Path:
    """The interpreter of a virtual environment of Python `version` holding `requirements`."""
    base = find_python(version)

    def create(folder: Path) -> None:
        _run([base, "-m", "venv", str(folder)])
        python = str(folder / "bin" / "python")
        _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])

    return _once("python", (version, *requirements), create) / "bin" / "python"


def python_package(requirement: str) -> Path:
    """A folder with the files of one package of PyPI, without what it depends on."""

    def download(folder: Path) -> None:
        install = ["install", "-q", "--disable-pip-version-check", "--no-deps", "--target", "files"]
        _run([sys.executable, "-m", "pip", *install, requirement], cwd=folder)

    return _once("package", (requirement,), download) / "files"


def find_python(version: str) -> str:
    """An interpreter of Python `version` ("3.7"), from PATH or from pyenv.

    Raises:
        MissingTool: neither has one that starts.
    """
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(path) for path in sorted(root.glob(f"{version}.*/bin/python"))]
    for candidate in candidates:
        # A pyenv shim exists for every version but only starts the selected ones.
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    raise MissingTool(f"Python {version} is not installed: pyenv install {version}")


def go_program(source: Path, *shared: Path) -> Path:
    """The executable of the Go module in folder `source`; the files `shared` are copied into it."""
    go = _find_go()
    files = [*sorted(path for path in source.iterdir() if path.is_file()), *shared]
    text = "".join(path.read_text() for path in files)

    def build(folder: Path) -> None:
        work = folder / "source"
        work.mkdir()
        for path in files:
            shutil.copy(path, work)
        _run([go, "mod", "tidy"], cwd=work)
        _run([go, "build", "-o", str(folder / "program"), "."], cwd=work)

    return _once("go", (source.name, text), build) / "program"


def go_tests(module: str, version: str, package: str) -> tuple[Path, Path]:
    """The folder of a package of a published Go module, and its tests as an executable.

    The tests expect to be started in that folder.
    """
    go = _find_go()

    def build(folder: Path) -> None:
        (folder / "go.mod").write_text("module local\n")
        module_facts = json.loads(
            _run([go, "mod", "download", "-json", f"{module}@{version}"], cwd=folder)
        )
        # The module cache is read-only, and what is there already is no writable checkout.
        shutil.copytree(module_facts["Dir"], folder / "source", copy_function=shutil.copyfile)
        for path in (folder / "source", *(folder / "source").rglob("*/")):
            path.chmod(0o755)
        _run([go, "test", "-c", "-o", str(folder / "tests"), "."], cwd=folder / "source" / package)

    folder = _once("go-tests", (module, version, package), build)
    return folder / "source" / package, folder / "tests"


def _find_go() -> str:
    usual = "/usr/local/go/bin/go"
    if shutil.which("go") is None and os.access(usual, os.X_OK):
        return usual
    return find_program("go", "install Go 1.24 or newer")


def _once(kind: str, identity: Sequence[str], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
    folder = CACHE / kind / digest
    mark = folder / ".complete"
    with _exclusive(CACHE / kind / f"{digest}.lock"):
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            mark.write_text("\n".join(identity)[:200])
    return folder


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip()[-1500:]
        raise InstallFailed(f"`{' '.join(command)}` ended with {done.returncode}: {tail}")
    return done.stdout
