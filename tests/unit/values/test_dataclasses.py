"""Classes of `values.dataclasses` behave as the standard library's; only `__init__` comes late."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value."""

    x: int
    y: int = 2
    label: str = dataclasses.field(default="", compare=False)
    secret: str = dataclasses.field(default="s", repr=False)


@dataclass(slots=True)
class Counter:
    """A state."""

    start: int
    seen: list[int] = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False, default=7)
    by_name: dict[str, int] = dataclasses.field(init=False, default_factory=dict)


def make(decorate: Callable[..., Any], **options: Any) -> Any:
    """A class of three fields, made by one of the two decorators."""

    class Made:
        """Of three fields."""

        first: int
        second: str = "two"
        third: list[int] = dataclasses.field(default_factory=list)

    return decorate(**options)(Made)


BOTH = pytest.mark.parametrize(
    "options",
    [
        {"frozen": True, "slots": True, "kw_only": True},
        {"frozen": True, "slots": True, "kw_only": True, "eq": False},
        {"slots": True},
        {"slots": True, "repr": False},
        {"kw_only": True},
    ],
    ids=repr,
)


def facts(cls: Any) -> dict[str, Any]:
    """What the objects of a class do, errors included."""

    def attempt(run: Callable[[], Any]) -> Any:
        try:
            return run()
        except (TypeError, AttributeError) as error:
            return type(error), str(error).replace("super(type, obj)", "")

    one, same, other = cls(first=1), cls(first=1, third=[]), cls(first=1, second="three")
    return {
        "repr": repr(one).partition(" at ")[0].replace("<", ""),
        "equal": (one == one, one == same, one == other, one == 1, one != other),
        "same hash": attempt(lambda: hash(cls(first=1, third=())) == hash(cls(first=1, third=()))),
        "hash of a list": attempt(lambda: hash(one) == hash(same)),
        "set": attempt(lambda: setattr(one, "first", 2)),
        "unknown": attempt(lambda: setattr(one, "fourth", 2)) is None,
        "deleted": attempt(lambda: delattr(one, "second")),
        "positional": attempt(lambda: cls(1, "x").second),
        "missing": attempt(cls),
        "too many": attempt(lambda: cls(first=1, fourth=2)),
        "own lists": cls(first=1).third is not cls(first=1).third,
        "replaced": dataclasses.replace(same, second="z").second,
        "dict": dataclasses.asdict(same),
        "names": [field.name for field in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "copied": copy.deepcopy(same).first,
        "has a dict": hasattr(one, "__dict__"),
    }


@BOTH
def test_a_class_does_what_the_standard_librarys_does(options: dict[str, Any]) -> None:
    assert facts(make(dataclass, **options)) == facts(make(dataclasses.dataclass, **options))


def test_init_is_compiled_for_the_first_object_and_then_stays() -> None:
    made = make(dataclass, frozen=True, slots=True, kw_only=True)
    stand_in = made.__init__
    assert "first" not in stand_in.__code__.co_varnames
    made(first=1)
    init = made.__init__
    assert init is not stand_in
    assert init.__code__.co_varnames[:4] == ("self", "first", "second", "third")
    made(first=2)
    assert made.__init__ is init


def test_wrong_arguments_of_the_first_object_are_named() -> None:
    made = make(dataclass, slots=True)
    with pytest.raises(TypeError, match=r"Made.__init__\(\) missing 1 required .*: 'first'"):
        made()
    assert made(1).second == "two"


def test_fields_that_are_no_parameters_get_their_defaults() -> None:
    counter = Counter(3)
    assert (counter.start, counter.seen, counter.total, counter.by_name) == (3, [], 7, {})
    assert Counter(3).by_name is not counter.by_name
    with pytest.raises(TypeError, match="total"):
        Counter(3, total=1)  # type: ignore[call-arg]


def test_fields_can_be_left_out_of_comparisons_and_of_the_text() -> None:
    assert Point(x=1, label="a") == Point(x=1, label="b")
    assert hash(Point(x=1, label="a")) == hash(Point(x=1, label="b"))
    assert Point(x=1, secret="t") != Point(x=1)
    assert repr(Point(x=1)) == "Point(x=1, y=2, label='')"


def test_one_compared_field_is_enough() -> None:
    @dataclass(frozen=True, slots=True)
    class One:
        """Of one field."""

        only: int

    assert One(1) == One(1) != One(2)
    assert len({One(1), One(1), One(2)}) == 2


def test_frozen_values_are_pickled_and_copied() -> None:
    point = Point(x=5, label="there")
    assert pickle.loads(pickle.dumps(point)).label == "there"
    assert copy.copy(point) == point


def test_methods_of_the_class_stay() -> None:
    @dataclass(frozen=True, slots=True)
    class Named:
        """By its name alone."""

        name: str
        about: str = ""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

        def __hash__(self) -> int:
            return hash(self.name)

        def __repr__(self) -> str:
            return self.name

    assert Named("a", "x") == Named("a", "y")
    assert repr(Named("a")) == "a"
    assert len({Named("a", "x"), Named("a", "y")}) == 1


def test_post_init_runs() -> None:
    @dataclass(kw_only=True)
    class Doubled:
        """Twice what was given."""

        count: int

        def __post_init__(self) -> None:
            self.count *= 2

    assert Doubled(count=2).count == 4


def test_a_class_may_inherit_fields() -> None:
    @dataclass(slots=True, kw_only=True)
    class Wider(Counter):
        """One field more."""

        more: str = "m"

    one = Wider(3, more="n")
    assert (one.start, one.total, one.more) == (3, 7, "n")
    assert repr(one).endswith("Wider(start=3, seen=[], total=7, by_name={}, more='n')")


def test_a_value_that_holds_itself_has_a_text() -> None:
    counter = Counter(1)
    counter.seen.append(counter)  # type: ignore[arg-type]
    assert repr(counter) == "Counter(start=1, seen=[...], total=7, by_name={})"


def test_a_frozen_class_without_slots_is_refused() -> None:
    with pytest.raises(AssertionError, match="a frozen class needs slots"):
        dataclass(frozen=True)
