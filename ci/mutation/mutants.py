"""Mutants of a Python file: its syntax tree with one small mistake."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One mistake."""

    line: int
    end: int
    """The last line of what is changed."""
    description: str
    """What was changed into what, as source text."""
    tree: ast.Module
    """The whole file with the mistake."""


def mutants(source: str) -> Iterator[Mutant]:
    """Yields all mutants of a file, in the order of their lines.

    Texts, annotations and decorators stay as they are: messages are compared by other tests, and a type has
    no effect at run time.
    """
    tree = ast.parse(source)
    for number, _ in enumerate(_targets(tree)):
        changed = copy.deepcopy(tree)
        node = list(_targets(changed))[number]
        before = _text(node)
        line, end = _lines(node)
        _change(node)
        ast.fix_missing_locations(changed)
        yield Mutant(line, end, f"{before} -> {_text(node)}", changed)


def _lines(node: ast.AST) -> tuple[int, int]:
    """Returns the first and the last line of a node; of a statement with a body, of its condition."""
    last = node.test if isinstance(node, ast.If | ast.While) else node
    line = getattr(node, "lineno", 1)
    return line, getattr(last, "end_lineno", None) or line


def _targets(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields the nodes that can be changed; the same ones, in the same order, for each copy of a tree."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
            continue
        if _can_change(node):
            yield node
        pending += reversed([child for child in _children(node)])


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "format_spec"):
            continue
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
            continue  # texts, and what they are made of
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _can_change(node: ast.AST) -> bool:
    """Returns whether there is a mistake for a node."""
    match node:
        case ast.Compare(ops=[operator]):
            return type(operator) in _COMPARISONS
        case ast.BoolOp() | ast.IfExp() | ast.While():
            return True
        case ast.If(test=test):
            return not isinstance(test, ast.Compare | ast.BoolOp)
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BinOp(op=operator, left=left, right=right):
            texts = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (left, right))
            return not texts and type(operator) in _OPERATORS
        case ast.AugAssign(op=operator):
            return type(operator) in _OPERATORS and not _is_text(node.value)
        case ast.Constant(value=value):
            return isinstance(value, bool | int | float)
        case ast.Return(value=ast.expr() as value):
            return not (isinstance(value, ast.Constant) and value.value in (None, True, False))
        case ast.Raise() | ast.Continue() | ast.Break():
            return True
        case ast.Expr(value=ast.Call()):
            return True
        case _:
            return False


def _text(node: ast.AST) -> str:
    """Returns a node's source on one line; of a statement with a body, its condition."""
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


def _is_text(node: ast.AST) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)) or isinstance(
        node, ast.JoinedStr
    )


def _change(node: ast.AST) -> None:
    """Makes the mistake in place."""
    match node:
        case ast.Compare():
            node.ops = [_COMPARISONS[type(node.ops[0])]()]
        case ast.BoolOp(op=operator):
            node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.IfExp() | ast.If() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.UnaryOp():
            _become(node, ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), node.operand)))
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator):
            node.op = _OPERATORS[type(operator)]()
        case ast.Constant(value=value):
            assert isinstance(value, int | float)
            node.value = not value if isinstance(value, bool) else value + 1
        case ast.Return():
            node.value = ast.Constant(None)
        case ast.Continue() | ast.Raise() | ast.Break() | ast.Expr():
            _become(node, ast.Pass())


def _become(node: ast.AST, other: ast.AST) -> None:
    """Turns a node into another kind, so that whoever holds it need not be known."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    node.__class__ = other.__class__
    node.__dict__.clear()
    node.__dict__.update(other.__dict__, lineno=line, col_offset=column)
