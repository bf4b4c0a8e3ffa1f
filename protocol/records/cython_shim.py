"""The part of the `cython` module that the loops need as plain Python without Cython.

The names exist so that the decorators of the loops evaluate; each does nothing. Types appear
only in annotations there, which are never evaluated, so no type names are needed.

Source: Cython's pure Python mode; this replaces its run-time module.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

_F = TypeVar("_F", bound=Callable[..., object])
_C = TypeVar("_C", bound=type)

compiled = False
"""Cython replaces this by True when it compiles a module."""

nogil = nullcontext()
"""A block in it runs as it is; compiled, without the interpreter lock."""


def cfunc(function: _F) -> _F:
    """Return `function`; compiled, it becomes a C function."""
    return function


def ccall(function: _F) -> _F:
    """Return `function`; compiled, C calls it directly, and Python can."""
    return function


def inline(function: _F) -> _F:
    """Return `function`; compiled, it may be inlined."""
    return function


def cclass(kind: _C) -> _C:
    """Return `kind`; compiled, its attributes become C fields."""
    return kind


def final(kind: _C) -> _C:
    """Return `kind`; compiled, it has no subclass, and its methods are called directly."""
    return kind


def exceptval(value: int | None = None, *, check: bool = False) -> Callable[[_F], _F]:
    """Return a decorator that changes nothing; compiled, `value` signals an exception."""
    del value, check
    return cfunc
