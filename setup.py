"""What pyproject.toml cannot say: compiled loops, one import name, requirements, a package's page.

In the checkout the packages are top-level (`storage`, `protocol`, ...), so that every tool sees
the tree as it is, and an editable install is a plain path entry. In a wheel names this general
would collide with other people's, so `BuildPy` moves the packages below `tidelog/` and lets their
absolute imports follow: `from storage import log` becomes `from tidelog.storage import log`.

The record loops are compiled when Cython and a C compiler are there. They are optional: without
them the build says so in one sentence, and the same files run as plain Python. All are compiled or
none, since they share structs and functions of C (`protocol.extensions`). They are compiled
from the moved sources in a wheel and from the checkout otherwise, so that a module's compiled name
is always the name it is imported by. TIDELOG_COMPILE=required makes a loop that does not compile an
error, as wheels for others need; TIDELOG_COMPILE=never makes the wheel that fits every machine.

The page of the package is README.md without what a page away from the files cannot have: see
`package_page`. Reasons: docs/adr/0029.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import sysconfig
import tomllib
from pathlib import Path
from typing import Final

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.errors import BaseError, CCompilerError, ExecError, PlatformError

DISTRIBUTION: Final = "tidelog"
PACKAGES: Final = frozenset(
    {"broker", "cli", "client", "config", "console", "pipeline", "protocol", "storage", "values"}
)
SHARED: Final = (
    "protocol.records.record_loops",
    "storage.append.plain",
    "storage.segment.facts",
    "storage.segment.feed",
    "storage.log.reader",
    "storage.log.lane",
    "broker.net.request_fields",
    "broker.net.produce_lane",
    "broker.net.fetch_lane",
    "broker.net.receive",
    "broker.net.connection",
)
"""What others import in C, as its `.pxd` declares."""
_EXTENSIONS: Final = runpy.run_path(str(Path(__file__).parent / "protocol" / "extensions.py"))
COMPILED: Final = tuple(path.replace("/", ".") for path in _EXTENSIONS["PATHS"])
CIMPORTS: Final = "cython.cimports."
COMPILE: Final = "TIDELOG_COMPILE"
REQUIRES: Final = (
    "construct>=2.10.70,<2.11",
    "crcmod>=1.7",
    "crc32c>=2.7",
    "prometheus-client>=0.20",
    "uvloop>=0.21",
    "cramjam>=2.9",
    "zstandard>=0.23",
    "xxhash>=3.4",
    "h11>=0.16",
    "click>=8.1",
    "javaproperties>=0.8",
    "rich>=13.7",
)
NOT_FOR_MUSL: Final = ("google-re2>=1.1",)
"""Has no wheels for musl, where an installation would need a C++ compiler. No marker of a
requirement tells the two C libraries apart, but who builds for one knows it. Without the package
patterns of clients are refused, with a sentence that names the cure (`protocol.patterns`)."""
SLOWER: Final = _EXTENSIONS["SLOWER"]
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|mailto:|#)([^)]+)\)")


def requirements(platform: str) -> list[str]:
    """What a broker needs, on Pythons for `platform`, such as ``x86_64-linux-musl``."""
    return [*REQUIRES, *(() if "musl" in platform else NOT_FOR_MUSL)]


class UnmovableImport(SystemExit):
    """A source file imports one of our packages in a form that cannot be renamed soundly."""


def moved_source(text: str, name: str) -> str:
    """`text` with its absolute imports of our packages led through `tidelog`.

    Only the form `from storage import x` can follow: `import storage.log.log` binds the name
    `storage`, which every use in the file would have to be rewritten for.

    Raises:
        UnmovableImport: `text` uses the other form; `name` and the line are in the message.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PACKAGES:
                    raise UnmovableImport(
                        f"{name}:{node.lineno}: write `from ... import ...` instead of "
                        f"`import {alias.name}`; the wheel cannot rename the statement form"
                    )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            place = CIMPORTS if module.startswith(CIMPORTS) else ""
            module = module.removeprefix(place)
            if module.partition(".")[0] in PACKAGES:
                line = lines[node.lineno - 1]
                old = f"from {place}{module}"
                # The statement's own column, so that no other text on the line is touched.
                head, tail = line[: node.col_offset], line[node.col_offset :]
                assert tail.startswith(old), f"{name}:{node.lineno}: unexpected import layout"
                new = f"from {place}{DISTRIBUTION}.{module}"
                lines[node.lineno - 1] = head + new + tail[len(old) :]
    return "".join(lines)


def moved_declarations(text: str) -> str:
    """`text` of a .pxd file with its absolute imports of our packages led through `tidelog`."""
    packages = "|".join(sorted(PACKAGES))
    return re.sub(rf"^from ({packages})(?=[. ])", rf"from {DISTRIBUTION}.\1", text, flags=re.M)


def package_page(readme: str, home: str) -> str:
    """`readme` for a page that has no files beside it.

    Links to files lead to `home`, where the project can be read. Without a home they become their
    text, and pictures go.
    """

    def moved(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if home:
            return f"{mark}[{text}]({home.rstrip('/')}/{target})"
        return "" if mark else text

    page = LINK.sub(moved, readme)
    return re.sub(r"\n{3,}", "\n\n", page)


def long_description() -> str:
    """The page of the package, with links to `Source` of the project's URLs, if there is one."""
    with open("pyproject.toml", "rb") as stream:
        urls = tomllib.load(stream)["project"].get("urls", {})
    return package_page(Path("README.md").read_text(encoding="utf-8"), urls.get("Source", ""))


class BuildPy(build_py):
    """Copies the packages, and in a wheel moves them below one name."""

    def run(self) -> None:
        if not self.editable_mode:
            # A module deleted since the last build must not come back from an old copy.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            self.move_packages(Path(self.build_lib))

    def move_packages(self, root: Path) -> None:
        home = root / DISTRIBUTION
        for package in sorted(PACKAGES):
            if (root / package).is_dir():
                (root / package).rename(home / package)
        # Spark finds a data source by the name of a module beside the packages.
        for path in [*sorted(home.rglob("*.py")), *sorted(root.glob("*.py"))]:
            text = path.read_text(encoding="utf-8")
            name = str(path.relative_to(root))
            path.write_text(moved_source(text, name), encoding="utf-8")
        for path in [*sorted(Path("docs").glob("*.md")), *sorted(Path("docs").glob("how-to/*.md"))]:
            # What `tidelog docs` shows, and messages name.
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, home / path)
        for path in sorted(home.rglob("*.pxd")):
            text = path.read_text(encoding="utf-8")
            path.write_text(moved_declarations(text), encoding="utf-8")


class EggInfo(egg_info):
    """Names `tidelog` as the one import name, whatever the checkout calls its folders."""

    def run(self) -> None:
        super().run()
        Path(self.egg_info, "top_level.txt").write_text(f"{DISTRIBUTION}\n", encoding="utf-8")


class BuildExt(build_ext):
    """Compiles the loops from where `BuildPy` left them, or does without."""

    failure = ""
    """The first module that could not be compiled, and why."""

    def run(self) -> None:
        # The base class hides `inplace` while it runs, and may have read the names before it knew.
        self.in_checkout = bool(self.inplace or self.editable_mode)
        for extension in self.extensions:
            name = extension.name.removeprefix(f"{DISTRIBUTION}.")
            extension.name = name if self.in_checkout else f"{DISTRIBUTION}.{name}"
            extension._full_name = extension.name
            extension._file_name = self.get_ext_filename(extension.name)
            self.ext_map[extension.name] = extension
        super().run()

    def build_extensions(self) -> None:
        """Build all, or leave none."""
        super().build_extensions()
        if self.failure:
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            print(
                f"{DISTRIBUTION}: {self.failure}; all compiled modules will run as plain Python: "
                f"{SLOWER}"
            )

    def copy_extensions_to_source(self) -> None:
        """Replace the extensions in the checkout; old ones never stay beside new ones."""
        build_py = self.get_finalized_command("build_py")
        for extension in self.extensions:
            place, _ = self._get_inplace_equivalent(build_py, extension)
            Path(place).unlink(missing_ok=True)
        super().copy_extensions_to_source()

    def build_extension(self, ext: Extension) -> None:
        if self.failure:
            return
        try:
            self.translate(ext)
            super().build_extension(ext)
        except (BaseError, CCompilerError, ExecError, PlatformError, OSError) as error:
            if os.environ.get(COMPILE) == "required":
                raise SystemExit(
                    f"{DISTRIBUTION}: {ext.name} could not be compiled ({error}), and "
                    f"{COMPILE}=required: install a C compiler, or leave the variable out"
                ) from error
            self.failure = f"{ext.name} could not be compiled ({error})"

    def translate(self, ext: Extension) -> None:
        """Let Cython write the C source of `ext` into the temporary build directory."""
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError

        root = Path() if self.in_checkout else Path(self.build_lib)
        source = root.joinpath(*ext.name.split(".")).with_suffix(".py")
        home = root if self.in_checkout else root / DISTRIBUTION
        shared = [home.joinpath(*name.split(".")).with_suffix(".pxd") for name in SHARED]
        try:
            (translated,) = cythonize(
                [Extension(ext.name, [str(source)])],
                build_dir=str(Path(self.build_temp) / "cython"),
                include_path=[str(root)],
                quiet=True,
                language_level=3,
            )
        except CompileError as error:
            raise BaseError(str(error)) from error
        ext.sources = translated.sources
        ext.depends = [str(source), *map(str, shared)]


def extensions() -> list[Extension]:
    """The loops to compile; none where a tool is missing, so that the wheel is pure Python.

    Raises:
        SystemExit: TIDELOG_COMPILE has another value, or is "required" and a tool is missing.
    """
    wanted = os.environ.get(COMPILE, "auto")
    if wanted not in ("auto", "required", "never"):
        raise SystemExit(f"{COMPILE}={wanted}: write auto, required or never")
    if wanted == "never":
        return []
    try:
        import Cython  # noqa: F401
    except ImportError:
        missing = "Cython"
    else:
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            missing = "Python.h (on Debian and Ubuntu: python3-dev)"
        elif shutil.which(compiler) or shutil.which("cc"):
            # Debug symbols would be nine tenths of the file.
            return [
                Extension(name, [], optional=True, extra_compile_args=["-g0"]) for name in COMPILED
            ]
        else:
            missing = "C compiler"
    if wanted == "required":
        raise SystemExit(f"{DISTRIBUTION}: there is no {missing} here, and {COMPILE}=required")
    print(
        f"{DISTRIBUTION}: there is no {missing} here; all compiled modules will run as plain "
        f"Python: {SLOWER}"
    )
    return []


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildPy, "build_ext": BuildExt, "egg_info": EggInfo},
        ext_modules=extensions(),
        install_requires=requirements(sysconfig.get_config_var("SOABI") or ""),
        long_description=long_description(),
        long_description_content_type="text/markdown",
    )
