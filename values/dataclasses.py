"""`dataclass` as the standard library's, except that `__init__` is compiled at its first use.

The standard library writes and compiles up to six functions for each class, used or not. A broker
imports two hundred such classes, its start uses few of them, and this was a third of the start's
CPU. Here the fields, the slots, and with them `fields`, `replace` and `asdict`, are the standard
library's. `__init__` is compiled when the first object is made. The other methods are not compiled:
they read the fields by name.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")

_ABSENT: Final = object()
"""The default of a parameter whose field has a factory."""


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    repr: bool = True,
    eq: bool = True,
    match_args: bool = True,
) -> Callable[[type[T]], type[T]]:
    """As `dataclasses.dataclass` with these options; a frozen class must have slots.

    A method that the class defines stays.
    """
    assert slots or not frozen, "a frozen class needs slots: give slots=True"
    declare = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only, match_args=match_args
    )

    def decorate(cls: type[T]) -> type[T]:
        own = vars(cls)
        made: Any = declare(cls)
        if "__init__" not in own:
            made.__init__ = _first_init(made, is_frozen=frozen)
        if repr and "__repr__" not in own:
            made.__repr__ = _repr
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_assignment, _refuse_deletion
            made.__getstate__, made.__setstate__ = _get_state, _set_state
        if eq:
            _add_comparison(made, own, is_frozen=frozen)
        return made  # type: ignore[no-any-return]

    return decorate


def _first_init(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """The `__init__` of a class without objects: puts the true one into its place and calls it."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _init(cls, is_frozen)
        cls.__init__(self, *args, **kwargs)

    return __init__


def _init(cls: type, is_frozen: bool) -> Callable[..., None]:
    """The `__init__` of `cls`: one parameter and one assignment for each field."""
    names: dict[str, Any] = {"_ABSENT": _ABSENT}
    positional, by_keyword, body = ["self"], ["*"], []
    for field in dataclasses.fields(cls):
        name, value, default = field.name, field.name, ""
        if field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            default = "=_ABSENT"
            value = f"_make_{name}() if {name} is _ABSENT else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        if field.init:
            (by_keyword if field.kw_only else positional).append(f"{name}{default}")
        elif default:
            value = f"_make_{name}()" if default == "=_ABSENT" else f"_default_{name}"
        else:
            continue
        if is_frozen:
            names[f"_set_{name}"] = getattr(cls, name).__set__  # of the slot
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = positional + (by_keyword if len(by_keyword) > 1 else [])
    lines = "\n ".join(body or ["pass"])
    source = f"def __init__({', '.join(parameters)}):\n {lines}\n"
    exec(compile(source, f"<__init__ of {cls.__qualname__}>", "exec"), names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _add_comparison(cls: Any, own: Any, *, is_frozen: bool) -> None:
    """Equality by the fields, and a hash of them if they cannot change."""
    values = _getter([field.name for field in dataclasses.fields(cls) if field.compare])

    def __eq__(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(values(self) == values(other))

    def __hash__(self: Any) -> int:
        return hash(values(self))

    if "__eq__" not in own:
        cls.__eq__ = __eq__
    if own.get("__hash__") is None:
        cls.__hash__ = __hash__ if is_frozen else None


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What returns the values of the fields `names` of an object."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_assignment(self: Any, name: str, _: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
