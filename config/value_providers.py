"""Values that settings take from elsewhere: `${file:PATH:KEY}` and the like.

The other forms are `${directory:PATH:FILE}` and `${env:NAME}`.

A provider has to be declared, as in Kafka:

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/tidelog

No class is loaded: the name of a class stands for one of the kinds here, and providers called
`file`, `env`, `directory` or `dir` need none. References are resolved when settings are read: at
start, at SIGHUP, and when a setting is changed at run time. What a reference stands for is in no
error message and in no description of settings; these show the reference.

Differences from Kafka, which are stricter: a key, file or variable that does not exist is an error
(Kafka keeps the text of the reference), and so is a reference to a provider of these four names
that is not declared. The last line break of a file of a directory is no part of its value.

Source: Kafka `ConfigTransformer`, `FileConfigProvider`, `DirectoryConfigProvider`,
`EnvVarConfigProvider`; KIP-297, KIP-421, KIP-632, KIP-887, KIP-993.
"""

import io
import os.path
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from config.errors import Problem
from config.rows import words
from config.values import HIDDEN
from values.dataclasses import dataclass

PROVIDERS: Final = "config.providers"
PROVIDERS_KEY: Final = words(
    PROVIDERS,
    (),
    "Names of providers of values: file, directory and env, which settings refer to as "
    "${file:PATH:KEY}, ${directory:PATH:FILE} and ${env:NAME}. Other names need "
    "config.providers.NAME.class.",
)

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_CLASSES: Final = "org.apache.kafka.common.config.provider."
_KIND_OF_CLASS: Final = MappingProxyType(
    {
        f"{_CLASSES}FileConfigProvider": "file",
        f"{_CLASSES}DirectoryConfigProvider": "directory",
        f"{_CLASSES}EnvVarConfigProvider": "env",
    }
)
_KIND_OF_NAME: Final = MappingProxyType(
    {"file": "file", "directory": "directory", "dir": "directory", "env": "env"}
)
_PARAMETER_OF: Final = MappingProxyType(
    {"file": "allowed.paths", "directory": "allowed.paths", "env": "allowlist.pattern"}
)

ReadFile = Callable[[str], str]
"""Reads a whole small text file; raises OSError or UnicodeDecodeError."""


class ReferenceUnusable(ValueError):
    """A reference that cannot be resolved; the message shows no value."""

    def __init__(self, reason: str, cure: str) -> None:
        """What is wrong, and what to do."""
        super().__init__(reason)
        self.cure = cure


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider: its kind, and what it may read.

    Attributes:
        kind: file, directory or env.
        allowed_paths: it reads at and below these paths only; empty allows all.
        allowed_names: the variables that it reads, as a regular expression; None allows all.
    """

    kind: str
    allowed_paths: tuple[str, ...] = ()
    allowed_names: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Providers:
    """The providers that are declared, and where they read."""

    by_name: Mapping[str, Provider] = field(default_factory=lambda: MappingProxyType({}))
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    read_file: ReadFile | None = field(default=None, repr=False)

    def resolve(self, text: str) -> str:
        """`text` with the values of its references in their places.

        Raises:
            ReferenceUnusable: a reference names what does not exist or may not be read.
        """
        return _REFERENCE.sub(self._value, text) if "${" in text else text

    def files_in(self, text: str) -> tuple[str, ...]:
        """The paths of the files that references in `text` read."""
        return tuple(self._files_in(text))

    def _files_in(self, text: str) -> Iterator[str]:
        for name, path, key in _REFERENCE.findall(text):
            provider = self.by_name.get(name)
            if provider is not None and provider.kind != "env":
                yield path if provider.kind == "file" else f"{path}/{key}"

    def _value(self, found: re.Match[str]) -> str:
        name, path, key = found[1], found[2] or "", found[3]
        provider = self.by_name.get(name)
        if provider is None:
            if name not in _KIND_OF_NAME:
                return found[0]  # as in Kafka
            raise ReferenceUnusable(
                f"there is no provider {name!r}", f"declare it: {PROVIDERS}={name}"
            )
        if provider.kind == "env":
            return self._variable(provider, found[0], path, key)
        return self._from_file(provider, found[0], path, key)

    def _variable(self, provider: Provider, reference: str, path: str, name: str) -> str:
        if path:
            raise ReferenceUnusable(
                f"{reference} names a path, and the environment has none", "write ${env:NAME}"
            )
        if provider.allowed_names is not None and not provider.allowed_names.fullmatch(name):
            raise ReferenceUnusable(
                f"the variable {name} does not match allowlist.pattern",
                "name a variable that matches it, or change the pattern",
            )
        if name not in self.environment:
            raise ReferenceUnusable(f"the environment has no variable {name}", "set it")
        return self.environment[name]

    def _from_file(self, provider: Provider, reference: str, path: str, key: str) -> str:
        if not path or not key:
            raise ReferenceUnusable(
                f"{reference} lacks a path or a key",
                "write ${file:PATH:KEY} or ${directory:PATH:FILE}",
            )
        if not _is_allowed(path, provider.allowed_paths):
            raise ReferenceUnusable(
                f"{path} is not at or below allowed.paths",
                f"use a path of {', '.join(provider.allowed_paths)}, or add this one",
            )
        if provider.kind == "directory":
            if "/" in key or key in (".", ".."):
                raise ReferenceUnusable(
                    f"{key!r} is no name of a file", "name a file of the directory itself"
                )
            text = self._read(f"{path}/{key}")
            return text.removesuffix("\n").removesuffix("\r")
        import javaproperties  # a start without references is faster

        try:
            properties = javaproperties.load(io.StringIO(self._read(path)))
        except javaproperties.InvalidUEscapeError:
            raise ReferenceUnusable(
                f"{path} has no four hexadecimal digits after \\u",
                "write a backslash as \\\\ in a .properties file",
            ) from None
        if key not in properties:
            raise ReferenceUnusable(f"{path} has no key {key}", f"add the line {key}=VALUE")
        return properties[key]

    def _read(self, path: str) -> str:
        if self.read_file is None:
            raise ReferenceUnusable("no files are read here", "write the value itself")
        try:
            return self.read_file(path)
        except UnicodeDecodeError:
            raise ReferenceUnusable(f"{path} is not UTF-8 text", "correct the file") from None
        except OSError as error:
            reason = f"cannot read {path}: {error.strerror or error}"
            raise ReferenceUnusable(reason, "correct the path or the rights of the file") from None


def _is_allowed(path: str, allowed: tuple[str, ...]) -> bool:
    """Whether `path` is one of `allowed` or below one; by its text, as in Kafka."""
    wanted = os.path.normpath(path)
    return not allowed or any(
        wanted == (root := os.path.normpath(one)) or wanted.startswith(root.rstrip("/") + "/")
        for one in allowed
    )


def declared_providers(
    texts: Mapping[str, str], environment: Mapping[str, str], read_file: ReadFile | None
) -> tuple[Providers, list[Problem]]:
    """The providers that the settings `texts` declare, and what is wrong with these settings.

    `texts` has all settings that begin with `config.providers`.
    """
    problems: list[Problem] = []
    names = [name.strip() for name in texts.get(PROVIDERS, "").split(",") if name.strip()]
    by_name: dict[str, Provider] = {}
    used = {PROVIDERS}
    for name in names:
        prefix = f"{PROVIDERS}.{name}."
        class_key = f"{prefix}class"
        kind = _KIND_OF_NAME.get(name)
        if class_key in texts:
            kind = _KIND_OF_CLASS.get(texts[class_key].strip())
        used.add(class_key)
        if kind is None:
            cure = f"set it to one of: {', '.join(_KIND_OF_CLASS)}"
            reason = "no class is loaded" if class_key in texts else "the provider has no class"
            problems.append(Problem(class_key, texts.get(class_key, ""), reason, cure))
            continue
        parameter_key = f"{prefix}param.{_PARAMETER_OF[kind]}"
        used.add(parameter_key)
        try:
            by_name[name] = _provider(kind, texts.get(parameter_key, ""))
        except ValueError as error:
            cure = "write absolute paths, or for variables a regular expression"
            problems.append(Problem(parameter_key, texts[parameter_key], str(error), cure))
    if not problems:
        cure = (
            f"name the provider in {PROVIDERS}; it may have .class, .param.allowed.paths (file, "
            "directory) and .param.allowlist.pattern (env)"
        )
        problems += [
            Problem(key, HIDDEN, "no provider has this setting", cure)
            for key in texts
            if key not in used
        ]
    return (
        Providers(by_name=MappingProxyType(by_name), environment=environment, read_file=read_file),
        problems,
    )


def _provider(kind: str, parameter: str) -> Provider:
    """A provider with its one parameter; empty is unset."""
    if not parameter.strip():
        return Provider(kind=kind)
    if kind == "env":
        try:
            return Provider(kind=kind, allowed_names=re.compile(parameter.strip()))
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
    paths = tuple(path.strip() for path in parameter.split(",") if path.strip())
    if relative := [path for path in paths if not os.path.isabs(path)]:
        raise ValueError(f"{relative[0]} is not absolute")
    return Provider(kind=kind, allowed_paths=paths)
