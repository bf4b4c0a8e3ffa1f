"""The vocabulary in which messages are declared: Kafka's field types and the life of a field.

A message is a class below `Struct`, whose fields declare their encoding; declarations import this
module as ``wire``::

    class PartitionProduceData(wire.Struct):
        index: int = wire.int32()
        records: wire.Buffer | None = wire.records(nullable_since=0)

Each fact is stated once, here; the struct of a field is that of its annotation.
``protocol.declare.schema`` derives the construct codec from it, ``protocol.declare.compiled`` the
fast one, and the tests their oracles; no other module repeats a version number. This module only
describes: it neither reads nor writes a byte. It does not import construct, so that declaring every
API costs no start-up time.

The life of a field, all inclusive, all version numbers of the message it belongs to:

    ===============  ============================================================================
    ``since``        first version that carries the field (0)
    ``until``        last version that carries it (for ever)
    ``nullable_since``  first version in which null may be sent (never)
    ``tag``          the field travels in the tag section under this number, when not default
    ``default``      value when absent, and the value a fresh object starts with
    ===============  ============================================================================

A field absent from a version is not written and reads as its default.

Source: Kafka ``clients/src/main/resources/common/message/README.md``, KIP-482 (flexible versions).
"""

import struct as struct_module
from collections.abc import Callable
from dataclasses import Field, field, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast, dataclass_transform, get_args

from protocol.api_keys import ApiKey
from values.dataclasses import dataclass

Buffer = bytes | bytearray | memoryview
"""The values of a records field: an owned payload or a view into a frame."""

FOR_EVER: Final = 32767
"""``until`` of a field that no version has dropped; versions are int16."""

NEVER: Final = 32768
"""``nullable_since`` or ``flexible_since`` when no version ever qualifies."""

ZERO_UUID: Final = bytes(16)
"""How "no topic id" is spelled on the wire."""

_SPEC_KEY: Final = "wire"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type of fixed size.

    Attributes:
        name: Kafka's name of the type.
        format: its letter in a big-endian ``struct`` format.
        size: bytes on the wire.
    """

    name: str
    format: str
    size: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A type with a length prefix, whose width depends on nullability and flexibility.

    Attributes:
        name: Kafka's name of the type.
        wide: whether the inflexible prefix is an int32 rather than an int16.
    """

    name: str
    wide: bool


BOOL: Final = Scalar("bool", "?", 1)
INT8: Final = Scalar("int8", "b", 1)
INT16: Final = Scalar("int16", "h", 2)
UINT16: Final = Scalar("uint16", "H", 2)
INT32: Final = Scalar("int32", "i", 4)
INT64: Final = Scalar("int64", "q", 8)
FLOAT64: Final = Scalar("float64", "d", 8)
UUID: Final = Scalar("uuid", "16s", 16)
STRING: Final = Variable("string", wide=False)
BYTES: Final = Variable("bytes", wide=True)
RECORDS: Final = Variable("records", wide=True)

Decoder = Callable[..., tuple[Any, int]]
"""``decode(buf, position, limit)``: the message at ``position`` and the position after it. That of
a request takes a fourth argument, the elements it may make: `REQUEST_ELEMENTS_MAX` by itself."""

Encoder = Callable[[Any, Callable[[Buffer], None]], None]
"""``encode(message, put)``: calls ``put`` with every piece of the message in order."""


class LayoutError(Exception):
    """A fast codec met input that its layout forbids; the registry turns it into a clear error."""


class TooManyElements(LayoutError):
    """The arrays and tag sections of a request hold more elements than its decoder may make."""


REQUEST_ELEMENTS_MAX: Final = 100_000
"""Array elements and tagged fields, nested ones included, that one request may hold: about 30 MB
once decoded."""


DECODE_FAULTS: Final = (LayoutError, struct_module.error, IndexError, ValueError, OverflowError)
"""All errors of a fast decoder on bytes that do not match its layout."""

ENCODE_FAULTS: Final = (LayoutError, struct_module.error, AttributeError, TypeError, ValueError)
"""All errors of a fast encoder on values that do not fit their types."""

Element = Scalar | Variable | type
"""The element of a field or an array: a primitive, or another declared dataclass."""

_ANNOTATED: Final = Variable("of the annotation", wide=False)
"""Stands for the struct that a field's annotation names, until its class is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """The declared life of one field; see the module docstring for the terms.

    The structs of an array that is `pre_encoded` may be given to an encoder as bytes, which
    `protocol.registry.struct_encoder` has made of them: then a long answer is never a graph of as
    many objects, which takes long to encode and as long to free. Decoders know only structs.
    """

    element: Element
    is_array: bool = False
    pre_encoded: bool = False
    since: int = 0
    until: int = FOR_EVER
    nullable_since: int = NEVER
    tag: int | None = None

    def present_in(self, version: int) -> bool:
        """Whether ``version`` carries the field at all."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Whether null may be sent in ``version``."""
        return version >= self.nullable_since


class Direction(Enum):
    """Which way a message travels."""

    REQUEST = "Request"
    RESPONSE = "Response"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """The properties of a whole message rather than of a field.

    Attributes:
        api_key: the API the message belongs to.
        direction: request or response.
        max_version: last declared version; the first is always 0.
        flexible_since: first version with compact lengths and tag sections (KIP-482).
    """

    api_key: ApiKey
    direction: Direction
    max_version: int
    flexible_since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpec:
    """The properties of a whole record of ``protocol.stored``; the terms are ``MessageSpec``'s."""

    max_version: int
    flexible_since: int
    direction: None = None


_MESSAGES: dict[type, MessageSpec] = {}
_STORED: dict[type, StoredSpec] = {}


@dataclass_transform(kw_only_default=True)
class _Declared(type):
    """Makes each class below `Struct` a slotted dataclass, whose fields are keyword arguments."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        max_version: int | None = None,
        flexible_since: int = NEVER,
    ) -> Any:
        declared: Any = super().__new__(cls, name, bases, namespace)
        if "__slots__" in namespace:
            return declared  # a base of declarations, or the class that `dataclass` makes of one
        # Of the class: from Python 3.14 on the namespace does not have them.
        for field_name, annotation in declared.__annotations__.items():
            _complete(namespace[field_name], annotation)
        # What is not made for each of a thousand classes costs a start no time and no memory.
        make = dataclass(slots=True, kw_only=True, repr=False, eq=False, match_args=False)
        declared = make(declared)
        if max_version is None:
            return declared
        if issubclass(declared, Stored):
            _STORED[declared] = StoredSpec(max_version=max_version, flexible_since=flexible_since)
            return declared
        api_key = ApiKey[declared.__module__.rpartition(".")[2].upper()]
        is_request = name.endswith(Direction.REQUEST.value)
        _MESSAGES[declared] = MessageSpec(
            api_key=api_key,
            direction=Direction.REQUEST if is_request else Direction.RESPONSE,
            max_version=max_version,
            flexible_since=flexible_since,
        )
        return declared


class Struct(metaclass=_Declared):
    """A part of messages or of stored records; has the versions of the one that it is in."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same class, with equal fields."""
        if type(other) is not type(self):
            return NotImplemented
        names = self.__dataclass_fields__
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        """The class with all fields."""
        values = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({', '.join(values)})"


class Message(Struct):
    """The root of a request or response of versions 0..``max_version``.

    Its name ends with "Request" or "Response"; its module has the name of the API.
    """

    __slots__ = ()


class Stored(Struct):
    """The root of a stored record of versions 0..``max_version``."""

    __slots__ = ()


def stored_spec(cls: type) -> StoredSpec:
    """The declared properties of a record of ``protocol.stored``.

    Raises:
        KeyError: the class is not a record.
    """
    return _STORED[cls]


def layout_spec(cls: type) -> MessageSpec | StoredSpec:
    """The declared properties of a message or a stored record.

    Raises:
        KeyError: the class is a nested struct, or none of ours.
    """
    return _STORED.get(cls) or _MESSAGES[cls]


def message_spec(cls: type) -> MessageSpec:
    """The declared properties of a message.

    Raises:
        KeyError: the class is not a message but a nested struct, or none of ours.
    """
    return _MESSAGES[cls]


def field_specs(cls: type) -> tuple[tuple[str, FieldSpec], ...]:
    """Name and declaration of every field of a declared dataclass, in wire order."""
    return tuple((f.name, f.metadata[_SPEC_KEY]) for f in fields(cls))


def _complete(declared: Field[Any], annotation: Any) -> None:
    """Give a field the struct S of its annotation: S, S | None, list[S] or list[S] | None."""
    spec = declared.metadata[_SPEC_KEY]
    if spec.element is not _ANNOTATED:
        return
    while parts := get_args(annotation):
        annotation = parts[0]
    assert isinstance(annotation, _Declared), f"{annotation} is no struct: name its primitive"
    declared.metadata = MappingProxyType({_SPEC_KEY: replace(spec, element=annotation)})
    if declared.default_factory is object:
        declared.default_factory = cast("Any", annotation)


def array(
    element: Element = _ANNOTATED,
    *,
    since: int = 0,
    until: int = FOR_EVER,
    nullable_since: int = NEVER,
    tag: int | None = None,
    default: type[list[Any]] | None = list,
    pre_encoded: bool = False,
) -> Any:
    """A counted sequence, of the struct in the annotation if no primitive is named.

    It starts empty unless ``default=None`` makes it start as null.
    """
    spec = FieldSpec(
        element=element,
        is_array=True,
        pre_encoded=pre_encoded,
        since=since,
        until=until,
        nullable_since=nullable_since,
        tag=tag,
    )
    if default is None:
        return field(default=None, metadata={_SPEC_KEY: spec})
    return field(default_factory=list, metadata={_SPEC_KEY: spec})


def struct(
    *,
    since: int = 0,
    until: int = FOR_EVER,
    nullable_since: int = NEVER,
    tag: int | None = None,
) -> Any:
    """The struct in the annotation.

    Starts as None where null is legal. Starts as None when tagged, too: that means "not sent" and
    saves building an object for every unused field. Else starts as a fresh struct.
    """
    spec = FieldSpec(
        element=_ANNOTATED, since=since, until=until, nullable_since=nullable_since, tag=tag
    )
    if nullable_since != NEVER or tag is not None:
        return field(default=None, metadata={_SPEC_KEY: spec})
    return field(default_factory=object, metadata={_SPEC_KEY: spec})


def _declare(element: Element, initial: Any) -> Callable[..., Any]:
    """A field specifier for a primitive; its default is ``initial`` unless declared otherwise."""

    def specify(
        *,
        since: int = 0,
        until: int = FOR_EVER,
        nullable_since: int = NEVER,
        tag: int | None = None,
        default: Any = initial,
    ) -> Any:
        spec = FieldSpec(
            element=element, since=since, until=until, nullable_since=nullable_since, tag=tag
        )
        return field(default=default, metadata={_SPEC_KEY: spec})

    return specify


boolean = _declare(BOOL, initial=False)
"""One byte; any value but 0 reads as true."""

int8 = _declare(INT8, initial=0)
int16 = _declare(INT16, initial=0)
uint16 = _declare(UINT16, initial=0)
int32 = _declare(INT32, initial=0)
int64 = _declare(INT64, initial=0)

operations = _declare(INT32, initial=-(2**31))
"""A bit field of operation codes; the default means "not requested"."""

float64 = _declare(FLOAT64, initial=0.0)

uuid = _declare(UUID, initial=ZERO_UUID)
"""Sixteen raw bytes; all zero means none."""

string = _declare(STRING, initial="")
"""UTF-8, at most 32767 bytes."""

binary = _declare(BYTES, initial=b"")
"""Opaque bytes, copied out of the frame when decoded."""

records = _declare(RECORDS, initial=None)
"""A records payload, never copied: decoded as a view of the frame, encoded as its own part."""
