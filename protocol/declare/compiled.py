"""Straight-line code for a layout: the work of ``schema``'s tree, without construct.

For one (class, version) and one direction this module writes a function as text, compiles it and
keeps it. Four choices make it fast. Neighbours of fixed size, length prefixes and counts included,
travel through one ``struct`` call. Everything nested is inlined, so that an array of structs is a
loop and not a call per element. Decoders fill the fields of an object one by one: a dataclass that
is called with keywords costs four times as much, because they travel through a dictionary. And no
fault is explained: each surfaces as one of the ``DECODE_FAULTS`` or ``ENCODE_FAULTS`` of
``protocol.declare.primitives``, and the registry then gets the reason from the tree.

Decoders have the signature ``decode(buf, pos, limit) -> (message, pos)`` over a memoryview of
``limit`` bytes. A records field becomes a view of ``buf``, everything else is copied. Bounds are
those of the tree: a count is checked against the bytes left before anything is built, a length
before anything is sliced. A request may hold `REQUEST_ELEMENTS_MAX` array elements and tagged
fields in all. The size of a frame alone bounds little: an element of two bytes becomes an object of
two hundred, and an unknown field of two bytes costs a turn of a loop. The caller of a request's
decoder may allow fewer.

Encoders have the signature ``encode(message, put)`` and call ``put`` with each piece in order; a
records field is put as it is, so that the caller may scatter instead of copy.

This is the code that decodes SaslHandshakeResponse v1, an int16 and an array of strings::

    def decode(buf, pos, limit):
     o1 = new(C2)
     o1.error_code, n3, = unpack4(buf, pos)
     pos += 6
     if n3 < 0 or n3 * 2 > limit - pos: raise LayoutError
     v5 = []
     for _ in range(n3):
      n6, = unpack7(buf, pos)
      pos += 2
      if n6 < 0 or n6 > 32767 or (e9 := pos + n6) > limit: raise LayoutError
      v8 = str(buf[pos:e9], 'utf-8')
      pos = e9
      v5.append(v8)
     o1.mechanisms = v5
     return o1, pos

construct has a compiler too. It was measured and rejected: see ``docs/adr``. The equality of both
codecs is a property test over every message, version and value.
"""

from __future__ import annotations

import dataclasses
import linecache
import struct
from collections.abc import Callable
from typing import Any, Final

from protocol.declare import varint
from protocol.declare.layout import (
    MAX_STRING_BYTES,
    Blob,
    MaybeStructure,
    Sequence,
    Structure,
    Text,
    fixed_format,
    structure,
)
from protocol.declare.primitives import (
    REQUEST_ELEMENTS_MAX,
    Decoder,
    Direction,
    Encoder,
    LayoutError,
    TooManyElements,
    layout_spec,
)

_SMALL_ARRAY: Final = 8
"""Arrays of scalars shorter than this, replica lists above all, have ready-made layouts."""


def compact_text(text: str) -> bytes:
    """``text`` with its compact length; the caller has dealt with null."""
    data = text.encode()
    count = len(data) + 1
    if count < varint.ONE_BYTE_END:
        return varint.ONE_BYTE[count] + data
    if count > MAX_STRING_BYTES + 1:
        raise LayoutError
    return varint.encode_unsigned(count) + data


def _array_unpackers(letter: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """For every small count, the function that reads so many scalars."""
    return tuple(struct.Struct(f">{count}{letter}").unpack_from for count in range(_SMALL_ARRAY))


def _array_packers(letter: str) -> tuple[Callable[..., bytes], ...]:
    """For every small count, the function that writes so many scalars."""
    return tuple(struct.Struct(f">{count}{letter}").pack for count in range(_SMALL_ARRAY))


class _Writer:
    """The text of one function under construction, and the objects it refers to by name.

    ``run`` collects neighbours of fixed size, as (struct letters, variable or expression), until an
    element comes that needs code of its own.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.run: list[tuple[str, str]] = []
        self.names: dict[str, Any] = {
            "LayoutError": LayoutError,
            "TooManyElements": TooManyElements,
            "compact_text": compact_text,
            "new": object.__new__,
            "ONE_BYTE": varint.ONE_BYTE,
            "skip_tags": varint.skip_tags,
            "unsigned": varint.encode_unsigned,
            "varint": varint.decode_unsigned,
        }
        self._serial = 0
        self._bound: dict[Any, str] = {}

    def fresh(self, prefix: str) -> str:
        """A name that is unique in this function."""
        self._serial += 1
        return f"{prefix}{self._serial}"

    def bind(self, prefix: str, key: Any, make: Callable[[], Any]) -> str:
        """The global name of an object, made once per ``key``."""
        if key not in self._bound:
            self._bound[key] = self.fresh(prefix)
            self.names[self._bound[key]] = make()
        return self._bound[key]

    def line(self, depth: int, text: str) -> None:
        """Append one line at an indentation of ``depth`` steps."""
        self.lines.append(" " * depth + text)

    def function(self, name: str, cls: type, version: int) -> Any:
        """Compile the text and return the function called ``name``."""
        source = "\n".join(self.lines) + "\n"
        path = f"<{__name__} {name} {cls.__name__} v{version}>"
        exec(compile(source, path, "exec"), self.names)
        # Tracebacks and debuggers look here for the text of a file that is not on disk.
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        return self.names[name]


# --- decoding ---------------------------------------------------------------------------------


class _DecodeWriter(_Writer):
    """Writes a decoder; that of a request counts the elements of its arrays down from `room`."""

    def __init__(self, *, counts_elements: bool) -> None:
        super().__init__()
        self.counts_elements = counts_elements

    def flush(self, depth: int) -> None:
        """Emit the one ``unpack_from`` for the collected run."""
        if not self.run:
            return
        layout = ">" + "".join(letters for letters, _ in self.run)
        targets = "".join(f"{target}, " for _, target in self.run)
        call = self.bind("unpack", layout, lambda: struct.Struct(layout).unpack_from)
        self.line(depth, f"{targets}= {call}(buf, pos)")
        self.line(depth, f"pos += {struct.calcsize(layout)}")
        self.run.clear()

    def prefix(self, node: Any, depth: int) -> str:
        """Emit the reading of a length or count; returns the variable that holds it."""
        size = self.fresh("n")
        letters = fixed_format(node)
        if letters is not None:
            self.run.append((letters, size))
            self.flush(depth)
        else:
            self.varint(size, depth)
            self.line(depth, f"{size} -= 1")
        return size

    def varint(self, target: str, depth: int) -> None:
        """Emit the reading of an unsigned varint, inline for its commonest width."""
        self.flush(depth)
        self.line(depth, f"{target} = buf[pos]")
        self.line(depth, f"if {target} < 128: pos += 1")
        self.line(depth, f"else: {target}, pos = varint(buf, pos)")

    def value(self, node: Any, depth: int, target: str = "") -> str:
        """Emit the reading of one value; returns the expression that holds it afterwards.

        A value that needs no variable of its own goes to ``target``, an attribute, if it is given.
        """
        letters = fixed_format(node)
        if letters is not None:
            target = target or self.fresh("v")
            self.run.append((letters, target))
            return target
        if isinstance(node, Structure):
            return self.structure(node, depth)
        if isinstance(node, MaybeStructure):
            return self.maybe(node, depth)
        if isinstance(node, Sequence):
            return self.sequence(node, depth)
        assert isinstance(node, Blob)
        return self.blob(node, depth, target)

    def blob(self, node: Blob, depth: int, target: str) -> str:
        """Emit a string, bytes or records; only records are not copied."""
        size = self.prefix(node.prefix, depth)
        target = target or self.fresh("v")
        end = self.fresh("e")
        excess = f"({end} := pos + {size}) > limit"
        taken = f"buf[pos:{end}]"
        if isinstance(node, Text):
            excess = f"{size} > {MAX_STRING_BYTES} or {excess}"
            taken = f"str({taken}, 'utf-8')"
        elif not node.is_records:
            taken = f"bytes({taken})"
        depth = self.refuse(node, size, excess, target, depth)
        self.line(depth, f"{target} = {taken}")
        self.line(depth, f"pos = {end}")
        return target

    def refuse(self, node: Any, size: str, excess: str, target: str, depth: int) -> int:
        """Emit the treatment of null and of ``excess``; returns the depth of the code after it."""
        if not node.nullable:
            self.line(depth, f"if {size} < 0 or {excess}: raise LayoutError")
            return depth
        self.line(depth, f"if {size} < 0: {target} = None")
        self.line(depth, "else:")
        self.line(depth + 1, f"if {excess}: raise LayoutError")
        return depth + 1

    def count(self, count: str, depth: int) -> None:
        """Emit code that takes `count` elements or tags from a request's allowance."""
        if self.counts_elements:
            self.line(depth, f"room -= {count}")
            self.line(depth, "if room < 0: raise TooManyElements")

    def sequence(self, node: Sequence, depth: int) -> str:
        """Emit an array; the count is bounded before the first element is read."""
        count = self.prefix(node.prefix, depth)
        target = self.fresh("v")
        excess = f"{count} * {node.least} > limit - pos"
        depth = self.refuse(node, count, excess, target, depth)
        self.count(count, depth)
        letters = fixed_format(node.element)
        if letters is not None and len(letters) == 1:
            arrays = self.bind("unpack", letters * 2, lambda: _array_unpackers(letters))
            wide = self.bind("unpack", "any", lambda: struct.unpack_from)
            self.line(
                depth, f"if {count} < {_SMALL_ARRAY}: {target} = [*{arrays}[{count}](buf, pos)]"
            )
            self.line(depth, f"else: {target} = [*{wide}(f'>{{{count}}}{letters}', buf, pos)]")
            self.line(depth, f"pos += {count} * {node.least}")
            return target
        self.line(depth, f"{target} = []")
        self.line(depth, f"for _ in range({count}):")
        item = self.value(node.element, depth + 1)
        self.flush(depth + 1)
        self.line(depth + 1, f"{target}.append({item})")
        return target

    def maybe(self, node: MaybeStructure, depth: int) -> str:
        """Emit a struct that may be null."""
        target = self.fresh("v")
        sign = self.fresh("n")
        self.run.append(("b", sign))
        self.flush(depth)
        self.line(depth, f"if {sign} < 0: {target} = None")
        self.line(depth, "else:")
        built = self.structure(node.body, depth + 1)
        self.line(depth + 1, f"{target} = {built}")
        return target

    def structure(self, node: Structure, depth: int) -> str:
        """Emit the object, its members and its tags; returns its name, with the run flushed."""
        built = self.fresh("o")
        self.flush(depth)
        self.line(depth, f"{built} = new({self.bound(node.cls)})")
        self.defaults(node, built, depth)
        for name, member in node.members:
            self.member(member, f"{built}.{name}", depth)
        if node.flexible:
            self.tags(node, built, depth)
        self.flush(depth)
        return built

    def bound(self, maker: Any) -> str:
        """The global name of a class or of another maker of defaults."""
        return self.bind("C", maker, lambda: maker)

    def defaults(self, node: Structure, built: str, depth: int) -> None:
        """Emit the values of the fields that this version does not have, or that are tagged."""
        read = {name for name, _ in node.members}
        for declared in dataclasses.fields(node.cls):
            if declared.name in read:
                continue
            make = declared.default_factory
            if make is dataclasses.MISSING:
                value = repr(declared.default)
            elif make is list:
                value = "[]"
            else:
                value = f"{self.bound(make)}()"
            self.line(depth, f"{built}.{declared.name} = {value}")

    def member(self, node: Any, attribute: str, depth: int) -> None:
        """Emit the reading of one field into its attribute."""
        value = self.value(node, depth, attribute)
        if value != attribute:
            self.line(depth, f"{attribute} = {value}")

    def tags(self, node: Structure, built: str, depth: int) -> None:
        """Emit the tag section; the tags that this version knows become attributes."""
        self.flush(depth)
        # Nearly always there are none.
        self.line(depth, "if not buf[pos]: pos += 1")
        self.line(depth, "else:")
        depth += 1
        count = self.fresh("n")
        self.line(depth, f"{count}, pos = varint(buf, pos)")
        self.count(count, depth)
        if not node.tags:
            self.line(depth, f"pos = skip_tags(buf, pos, {count})")
            return
        self.line(depth, f"for _ in range({count}):")
        depth += 1
        tag, size, end = self.fresh("t"), self.fresh("n"), self.fresh("e")
        self.varint(tag, depth)
        self.varint(size, depth)
        self.line(depth, f"{end} = pos + {size}")
        self.line(depth, f"if {end} > limit: raise LayoutError")
        for tagged in node.tags:
            self.line(depth, f"if {tag} == {tagged.tag}:")
            self.member(tagged.node, f"{built}.{tagged.name}", depth + 1)
            self.flush(depth + 1)
            self.line(depth + 1, f"if pos != {end}: raise LayoutError")
        self.line(depth, f"pos = {end}")


def write_decoder(cls: type, version: int) -> Decoder:
    """A fresh decoder of ``cls`` in ``version``; the caller keeps it."""
    is_request = layout_spec(cls).direction is Direction.REQUEST
    writer = _DecodeWriter(counts_elements=is_request)
    room = f", room={REQUEST_ELEMENTS_MAX}" if is_request else ""
    writer.line(0, f"def decode(buf, pos, limit{room}):")
    result = writer.structure(structure(cls, version), 1)
    writer.line(1, f"return {result}, pos")
    function: Decoder = writer.function("decode", cls, version)
    return function


# --- encoding ---------------------------------------------------------------------------------


class _EncodeWriter(_Writer):
    """Writes an encoder."""

    def packed(self) -> str:
        """The expression of the collected run's bytes, empty when there is none; empties it."""
        if not self.run:
            return ""
        layout = ">" + "".join(letters for letters, _ in self.run)
        values = ", ".join(value for letters, value in self.run if letters != "x")
        size = len(self.run)
        self.run.clear()
        if not values:
            return repr(bytes(size))
        return f"{self.bind('pack', layout, lambda: struct.Struct(layout).pack)}({values})"

    def flush(self, depth: int) -> None:
        """Emit the one ``pack`` for the collected run."""
        if self.run:
            self.line(depth, f"put({self.packed()})")

    def joined(self, expression: str, depth: int) -> None:
        """Emit one piece: the collected run and the bytes that ``expression`` yields."""
        packed = self.packed()
        self.line(depth, f"put({packed} + {expression})" if packed else f"put({expression})")

    def value(self, node: Any, expression: str, depth: int) -> None:
        """Emit the writing of one value that ``expression`` yields."""
        letters = fixed_format(node)
        if letters is not None:
            self.run.append((letters, expression))
        elif isinstance(node, Structure):
            self.structure(node, expression, depth)
        elif isinstance(node, MaybeStructure):
            self.maybe(node, expression, depth)
        elif isinstance(node, Sequence):
            self.sequence(node, expression, depth)
        else:
            assert isinstance(node, Blob)
            self.blob(node, expression, depth)

    def blob(self, node: Blob, expression: str, depth: int) -> None:
        """Emit a string, bytes or records."""
        if fixed_format(node.prefix) is None:
            self.compact_blob(node, expression, depth)
        else:
            self.wide_blob(node, expression, depth)

    def compact_blob(self, node: Blob, expression: str, depth: int) -> None:
        """Emit a value whose length is a varint."""
        value = expression
        if node.nullable or not isinstance(node, Text):
            value = self.fresh("v")
            self.line(depth, f"{value} = {expression}")
        written = (
            f"compact_text({value})" if isinstance(node, Text) else f"unsigned(len({value}) + 1)"
        )
        if node.nullable:
            written = f"(b'\\0' if {value} is None else {written})"
        self.joined(written, depth)
        if not isinstance(node, Text):
            self.line(depth, f"if {value}: put({value})")

    def wide_blob(self, node: Blob, expression: str, depth: int) -> None:
        """Emit a value whose length is an integer and joins the run before it."""
        value, size = self.fresh("v"), self.fresh("n")
        self.line(depth, f"{value} = {expression}")
        body = f"{value} = {value}.encode(); " if isinstance(node, Text) else ""
        if node.nullable:
            self.line(depth, f"if {value} is None: {value} = b''; {size} = -1")
            self.line(depth, f"else: {body}{size} = len({value})")
        else:
            self.line(depth, f"{body}{size} = len({value})")
        letters = fixed_format(node.prefix)
        assert letters is not None
        self.run.append((letters, size))
        self.flush(depth)
        self.line(depth, f"put({value})")

    def sequence(self, node: Sequence, expression: str, depth: int) -> None:
        """Emit the count and the elements of an array."""
        items, size = self.fresh("v"), self.fresh("n")
        self.line(depth, f"{items} = {expression}")
        if node.nullable:
            self.line(depth, f"if {items} is None: {items} = (); {size} = -1")
            self.line(depth, f"else: {size} = len({items})")
        else:
            self.line(depth, f"{size} = len({items})")
        letters = fixed_format(node.prefix)
        if letters is not None:
            self.run.append((letters, size))
            self.flush(depth)
        else:
            one_byte = f"{size} < {varint.ONE_BYTE_END - 1}"
            self.joined(f"(ONE_BYTE[{size} + 1] if {one_byte} else unsigned({size} + 1))", depth)
        element = fixed_format(node.element)
        if element is not None and len(element) == 1:
            arrays = self.bind("pack", element * 2, lambda: _array_packers(element))
            wide = self.bind("pack", "any", lambda: struct.pack)
            count = f"len({items})"
            self.line(depth, f"if {count} < {_SMALL_ARRAY}: put({arrays}[{count}](*{items}))")
            self.line(depth, f"else: put({wide}(f'>{{{count}}}{element}', *{items}))")
            return
        item = self.fresh("o")
        self.line(depth, f"for {item} in {items}:")
        if node.pre_encoded:
            self.line(depth + 1, f"if type({item}) is bytes: put({item}); continue")
        self.value(node.element, item, depth + 1)
        self.flush(depth + 1)

    def maybe(self, node: MaybeStructure, expression: str, depth: int) -> None:
        """Emit a struct that may be null."""
        value = self.fresh("o")
        self.flush(depth)
        self.line(depth, f"{value} = {expression}")
        self.line(depth, f"if {value} is None: put(b'\\xff')")
        self.line(depth, "else:")
        self.run.append(("b", "1"))
        self.structure(node.body, value, depth + 1)
        self.flush(depth + 1)

    def structure(self, node: Structure, expression: str, depth: int) -> None:
        """Emit the members and the tag section of a struct."""
        if not expression.isidentifier():
            value = self.fresh("o")
            self.line(depth, f"{value} = {expression}")
            expression = value
        for name, member in node.members:
            self.value(member, f"{expression}.{name}", depth)
        if not node.flexible:
            return
        if node.tags:
            self.tags(node, expression, depth)
        else:
            self.run.append(("x", ""))

    def tags(self, node: Structure, expression: str, depth: int) -> None:
        """Emit the tag section: only what differs from its default, in ascending order."""
        self.flush(depth)
        values = []
        for tagged in node.tags:
            value = self.fresh("o")
            self.line(depth, f"{value} = {expression}.{tagged.name}")
            absent = "is" if tagged.default is None else "=="
            values.append((tagged, value, f"{value} {absent} {tagged.default!r}"))
        nothing = " and ".join(test for _, _, test in values)
        self.line(depth, f"if {nothing}: put(b'\\0')")
        self.line(depth, "else:")
        depth += 1
        count = " + ".join(f"(not {test})" for _, _, test in values)
        self.line(depth, f"put(unsigned({count}))")
        for tagged, value, test in values:
            self.line(depth, f"if not {test}:")
            outer, body = self.fresh("put"), self.fresh("b")
            self.line(depth + 1, f"{outer} = put; {body} = []; put = {body}.append")
            self.value(tagged.node, value, depth + 1)
            self.flush(depth + 1)
            self.line(depth + 1, f"put = {outer}; {body} = b''.join({body})")
            self.line(depth + 1, f"put({varint.encode_unsigned(tagged.tag)!r})")
            self.line(depth + 1, f"put(unsigned(len({body}))); put({body})")


def write_encoder(cls: type, version: int, message: type | None = None) -> Encoder:
    """A fresh encoder of ``cls`` in ``version``; the caller keeps it.

    Of a nested struct, ``message`` is the one that it is in.
    """
    writer = _EncodeWriter()
    writer.line(0, "def encode(message, put):")
    writer.structure(structure(cls, version, message), "message", 1)
    writer.flush(1)
    writer.line(1, "return")
    function: Encoder = writer.function("encode", cls, version)
    return function
