"""The mutants of one module: small bugs, each planted in one function.

Owns what a mutant is (mutmut's operators say which there are), how it is named in a report, and how
it is put into a process that has the module imported: the code of the function is replaced, so that
everyone who holds the function gets the bug.

Read next: tests/mutation/fork.py.
"""

import ast
import difflib
import importlib
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import libcst as cst
from libcst.metadata import (
    CodeRange,
    MetadataWrapper,
    PositionProvider,
    WhitespaceInclusivePositionProvider,
)
from mutmut.mutation.file_mutation import Mutation, MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.tidy.tree import ROOT

_NOTE: Final = "_note_of_mutants"
_NOTHING_IGNORED: Final = IgnoredCode(set(), set(), set())


class Module:
    """The source of a module, the line ranges of its statements, and its mutants."""

    def __init__(self, path: str) -> None:
        """`path` is relative to the root of the checkout, like storage/log/lookup.py."""
        self.path = path
        self.name = path.removesuffix(".py").replace("/", ".")
        self.source = (ROOT / path).read_text(encoding="utf-8")
        self._line_starts = [0, *accumulate(map(len, self.source.splitlines(keepends=True)))]
        tree = ast.parse(self.source)
        self._statements = list(_statement_lines(tree))
        self._asserts = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    def statement_at(self, line: int) -> range:
        """The lines of the smallest statement around `line`; of an `if` or a loop, its head."""
        around = [lines for lines in self._statements if line in lines]
        return min(around, key=len, default=range(line, line + 1))

    def plant_notes(self, functions: Iterable[str]) -> None:
        """Let these functions note the lines of the statements that they reach, see `notes`.

        This costs a call for each statement of these functions, and nothing elsewhere; a trace
        function would cost a call for each function that the tests call anywhere.
        """
        tree = _Noting().visit(ast.parse(self.source))
        code = compile(ast.fix_missing_locations(tree), self.path, "exec")
        _plant(self, code, functions)

    def notes(self, note: Callable[[int], object]) -> None:
        """From now on `note` gets the lines."""
        vars(importlib.import_module(self.name))[_NOTE] = note

    def mutants(self) -> list["Mutant"]:
        """Every mutant, in the order of the source; what an `assert` says is not mutated."""
        wrapper = MetadataWrapper(cst.parse_module(self.source))
        visitor = MutationVisitor(mutation_operators, _NOTHING_IGNORED)
        tree = wrapper.visit(visitor)
        positions = wrapper.resolve(PositionProvider)
        spans = wrapper.resolve(WhitespaceInclusivePositionProvider)
        names: dict[cst.CSTNode | None, str] = dict(_function_names(tree))
        found = []
        for mutation in visitor.mutations:
            within = mutation.contained_by_top_level_function
            line = positions[mutation.original_node].start.line
            if within in names and line not in self._asserts:
                span = self._span(spans[mutation.original_node])
                found.append(Mutant(self, tree, names[within], line, mutation, span))
        return found

    def _span(self, range_: CodeRange) -> slice:
        """The characters of the source between two positions."""
        lines = self._line_starts
        start, end = range_.start, range_.end
        return slice(lines[start.line - 1] + start.column, lines[end.line - 1] + end.column)


class Mutant:
    """One small bug in one function."""

    def __init__(
        self,
        module: Module,
        tree: cst.Module,
        function: str,
        line: int,
        mutation: Mutation,
        span: slice,
    ) -> None:
        """Replace what the module has in `span`, which begins in `line`."""
        self.module = module
        self.function = function
        """Qualified, like Log.append."""
        self._first_line = line
        self._tree = tree
        self._mutation = mutation
        self._span = span

    @cached_property
    def source(self) -> str:
        """The whole module with the bug in it."""
        was, now = self._mutation.original_node, self._mutation.mutated_node
        code = cst.Module([]).code_for_node(now)
        if "\n" not in code:
            # Much quicker, and right wherever no line has to be indented.
            whole = self.module.source
            return whole[: self._span.start] + code + whole[self._span.stop :]
        mutated = deep_replace(self._tree, was, now)
        assert isinstance(mutated, cst.Module)
        return mutated.code

    @cached_property
    def line(self) -> int:
        """The first line that differs."""
        pairs = zip(self.module.source.splitlines(), self.source.splitlines(), strict=False)
        return next((n for n, (a, b) in enumerate(pairs, 1) if a != b), self._first_line)

    @cached_property
    def change(self) -> str:
        """What was and what is, on one line: `a < b => a <= b`."""
        was, now = self.module.source.splitlines(), self.source.splitlines()
        matcher = difflib.SequenceMatcher(None, was, now, autojunk=False)
        before: list[str] = []
        after: list[str] = []
        for tag, *(i, j, k, m) in matcher.get_opcodes():
            if tag != "equal":
                before += [line.strip() for line in was[i:j]]
                after += [line.strip() for line in now[k:m]]
        return f"{' '.join(before)} => {' '.join(after)}"

    @property
    def name(self) -> str:
        """What names this mutant in results and explanations."""
        return f"{self.function}: {self.change}"

    def diff(self) -> str:
        """The bug as a diff with the lines around it."""
        path = self.module.path
        lines = difflib.unified_diff(
            self.module.source.splitlines(),
            self.source.splitlines(),
            *(path, path),
            f"line {self.line}",
            self.function,
            n=2,
            lineterm="",
        )
        return "\n".join(lines)

    def plant(self) -> None:
        """Put the bug into this process; there is no way back."""
        _plant(
            self.module, compile(self.source, str(ROOT / self.module.path), "exec"), [self.function]
        )


class _Noting(ast.NodeTransformer):
    """Puts a call that notes their lines before the statements of every function."""

    def __init__(self) -> None:
        self._is_within = False

    def visit(self, node: ast.AST) -> Any:
        """Add the calls within functions; what is around them runs at the import."""
        was_within = self._is_within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._is_within = True
            self.generic_visit(node)
            node.body.insert(0, _note(node))
        else:
            self.generic_visit(node)
        self._is_within = was_within
        return [_note(node), node] if was_within and isinstance(node, ast.stmt) else node


def _note(statement: ast.AST) -> ast.stmt:
    """A call that notes the first lines of the statement and of its `except` and `case` clauses."""
    clauses = [*getattr(statement, "handlers", ())]
    clauses += [case.pattern for case in getattr(statement, "cases", ())]
    lines = [each.lineno for each in (statement, *clauses)]
    calls = [f"{_NOTE}({line})" for line in lines]
    (call,) = ast.parse(f"({', '.join(calls)})").body
    return ast.copy_location(call, statement)


def _plant(module: Module, code: types.CodeType, functions: Iterable[str]) -> None:
    """Replace the code of these functions of the imported module."""
    real = importlib.import_module(module.name)
    scratch = types.ModuleType(module.name)
    scratch.__dict__.update(__file__=real.__file__, __package__=real.__package__)
    exec(code, scratch.__dict__)
    for name in functions:
        planted, healthy = _function(scratch, name), _function(real, name)
        healthy.__code__ = planted.__code__
        healthy.__defaults__ = planted.__defaults__
        healthy.__kwdefaults__ = planted.__kwdefaults__


def _function(module: types.ModuleType, name: str) -> types.FunctionType:
    *classes, last = name.split(".")
    holder: object = module
    for each in classes:
        holder = vars(holder)[each]
    found = vars(holder)[last]
    found = getattr(found, "__func__", found)
    assert isinstance(found, types.FunctionType), f"{name} is a {type(found).__name__}"
    return found


def _function_names(tree: cst.Module) -> Iterator[tuple[cst.CSTNode, str]]:
    for statement in tree.body:
        if isinstance(statement, cst.FunctionDef):
            yield statement, statement.name.value
        elif isinstance(statement, cst.ClassDef):
            for method in statement.body.body:
                if isinstance(method, cst.FunctionDef):
                    yield method, f"{statement.name.value}.{method.name.value}"


def _statement_lines(tree: ast.AST) -> Iterator[range]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            end = node.end_lineno or node.lineno
            inner = [child for field in ("body", "cases") for child in getattr(node, field, ())]
            if inner:
                first = inner[0]
                end = first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno
                end = max(node.lineno, end - 1)
            decorators = getattr(node, "decorator_list", ())
            yield range(min((d.lineno for d in decorators), default=node.lineno), end + 1)
