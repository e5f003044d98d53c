"""Small bugs that can be injected into a file; `mutants.py` draws from them."""

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.Lt,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
CALLS = {"min": "max", "minimum": "maximum", "fmin": "fmax"}
CALLS |= {after: before for before, after in CALLS.items()}
LISTED = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple)


@dataclass(frozen=True)
class Mutation:
    """One expression or statement of a file, and its replacement.

    Attributes:
        file: Path from the root.
        line: Where it begins.
        start: Its first byte.
        end: The byte after its last.
        before: Its text before the mutation.
        after: The text that replaces it.
    """

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied(self, source: bytes) -> bytes:
        """Return the source of a file with this bug in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutations_of(source: bytes, file: str) -> list[Mutation]:
    """Return every mutation of a file.

    >>> [(each.before, each.after) for each in mutations_of(b"x = a < 2 and not b", "")][:3]
    [('a < 2 and (not b)', '(a < 2 or not b)'), ('a < 2', '(a <= 2)'), ('2', '(3)')]
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(place: ast.expr | ast.stmt, text: str) -> Mutation:
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        start, end = starts[place.lineno - 1] + place.col_offset, starts[place.end_lineno - 1] + place.end_col_offset
        return Mutation(file, place.lineno, start, end, ast.unparse(place), text)

    return [at(place, text) for node in walked(ast.parse(source)) for place, text in changes(node)]


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may be mutated: no annotation, no text, no error that is raised, no setting of a class."""
    yield node
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns") or (name == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        for each in field if isinstance(field, list) else [field]:
            if isinstance(each, ast.AST) and not is_left_out(each):
                yield from walked(each)


def is_left_out(node: ast.AST) -> bool:
    """Tell whether a node and everything below it stay unchanged."""
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets)
    return isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict")


def changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the parts of a node that are replaced, with their new text."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            yield node, text_of(node, ops=[OPERATORS[type(operator)]()])
        case ast.BinOp(left=left, right=right, op=operator) if type(operator) in OPERATORS:
            if not any(isinstance(each, LISTED) and not is_number(each) for each in (left, right)):
                yield node, text_of(node, op=OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield node, text_of(node, op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, f"({not value})"
        case ast.Constant(value=int(value) | float(value)):
            yield node, f"({raised(value)})"
        case ast.Call(func=ast.Name(id=name) as called) if name in CALLS:
            yield called, CALLS[name]
        case ast.Call(func=ast.Attribute(value=owner, attr=name) as called) if name in CALLS:
            yield called, f"({ast.unparse(owner)}).{CALLS[name]}"
        case ast.If(test=test, body=[*_, last]):
            yield test, f"(not ({ast.unparse(test)}))"
            if isinstance(last, ast.Return) and not node.orelse and len(node.body) == 1:
                yield last, "pass"
        case ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"


def is_number(node: ast.expr) -> bool:
    """Tell whether a node is a literal number."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def raised(value: float) -> float:
    """Return one and a half times a number; an integer stays an integer, and zero becomes one.

    >>> raised(0), raised(1), raised(3), raised(0.2)
    (1, 2, 5, 0.30000000000000004)
    """
    if value == 0:
        return type(value)(1)
    return -(-value * 3 // 2) if isinstance(value, int) else value * 1.5


def text_of(node: ast.expr, **fields: object) -> str:
    """Return the text of an expression with some fields replaced, in brackets."""
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})"
