"""The public names of ckaudit as one document, from the source alone: torch and the trainers need not be installed."""  # noqa: INP001

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WIDTH = 100  # columns of a signature
INTRODUCTION = """# The Python API

Written by `docs/make.py` from the code. What is named here is public; everything else may change. A `RunPath` is text, a `Path`
or a file:// address that names a run folder, a checkpoint, or the log of another program. A `PolicyNamed` is the file of a
[policy](../policy.md), None for the one that the command line would follow in the working folder, or False for none.
A `Severity` is "sev0", "sev1", "sev2" or "note", the gravest first. `Finding`, `Diagnosis` and all else in a report are as
[ck.report.v1](../../schemas/ck.report.v1.schema.json) has them, what a comparison holds as
[ck.diff.v1](../../schemas/ck.diff.v1.schema.json). The commands themselves stand in the [README](../../README.md).
"""
GROUPS = {
    "The commands as functions": ("triage", "validate", "metrics", "diff", "gate", "fleet", "assert_healthy", "read_run"),
    "What they return": ("Audit", "Metrics", "Difference", "FleetAudit", "Run", "Series"),
    "Recording a training": (
        "Recorder",
        "huggingface.RecorderCallback",
        "lightning.RecorderCallback",
        "Writer",
        "EventThresholds",
    ),
    "Alarms inside a training": ("Watch", "LogHandler"),
    "Errors": ("CkauditError", "UnreadableError", "UsageError", "UnhealthyRunError"),
}
HOMES = {
    "read_run": "run/read.py",
    "Run": "run/run.py",
    "Series": "run/series.py",
    "Recorder": "recorder/recorder.py",
    "huggingface.RecorderCallback": "recorder/huggingface.py",
    "lightning.RecorderCallback": "recorder/lightning.py",
    "Writer": "recorder/writer.py",
    "EventThresholds": "recorder/loop/triggers.py",
    "Audit": "api/results.py",
    "Metrics": "api/results.py",
    "Difference": "api/results.py",
    "FleetAudit": "api/results.py",
    "Watch": "alarm.py",
    "LogHandler": "alarm.py",
} | dict.fromkeys(GROUPS["Errors"], "errors.py")
PLACES = {
    "Run": "ckaudit.run.run.",
    "Series": "ckaudit.run.series.",
    "EventThresholds": "ckaudit.recorder.",
    "huggingface.RecorderCallback": "ckaudit.recorder.",
    "lightning.RecorderCallback": "ckaudit.recorder.",
} | dict.fromkeys(("CkauditError", "UnreadableError", "UsageError"), "ckaudit.errors.")
EXAMPLES = {
    "Recorder": "plain_pytorch.py",
    "huggingface.RecorderCallback": "with_huggingface.py",
    "lightning.RecorderCallback": "with_lightning.py",
    "Writer": "numpy_writer.py",
}
NOT_MADE_BY_HAND = frozenset({"Audit", "Metrics", "Difference", "Run", "Series"})
SHOWN = {
    "Run": ("last_step", "tensors", "scalar", "series", "value", "words", "grid", "until"),
    "Series": ("finite", "nonfinite", "points", "recorded_rows", "only", "until"),
}
"""Members of the engine's classes that a reader of a run needs; the others are left out."""
OF_TRAINERS = re.compile(r"on_\w+|setup|(load_)?state_dict")  # methods that only a trainer calls
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
TITLES = {"Args": "Arguments", "Attributes": "Attributes", "Returns": "Returns", "Yields": "Yields", "Raises": "Raises"}
Function = ast.FunctionDef
Node = Function | ast.ClassDef


class Member(NamedTuple):
    """A public method or property of a class."""

    node: Function
    is_property: bool


def document() -> str:
    """Return the whole of `api.md`."""
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        rows = [f"- [`{name}`](#{anchors()[name]}) {first_sentence(name)}" for name in names]
        parts.append(f"**{title}**\n\n" + "\n".join(rows) + "\n")
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += ["\n\n".join(page(name)) + "\n" for name in names]
    return "\n".join(parts)


def first_sentence(name: str) -> str:
    """Return the first line of a name's docstring."""
    return words(doc_of(find(name)).partition("\n")[0], own=name)


# One name: its signature, its docstring, and the members of a class.
def page(name: str) -> Iterator[str]:
    """Yield the blocks of one name."""
    node = find(name)
    yield f"### {name}"
    place = PLACES.get(name, "ckaudit.") + name
    if isinstance(node, Function):
        yield fence("py", signature(place, node))
    else:
        made = constructor(node)
        parts = [f"class {place}"] if name in NOT_MADE_BY_HAND or made is None else [signature(place, made, is_method=True)]
        yield fence("py", *parts)
    yield from blocks(doc_of(node), own=name)
    if name in EXAMPLES:
        yield f"A whole program: [examples/{EXAMPLES[name]}](../../examples/{EXAMPLES[name]})."
    for member in members(name).values() if isinstance(node, ast.ClassDef) else ():
        yield from _member(name, member)


def _member(name: str, member: Member) -> Iterator[str]:
    node = member.node
    whole = f"{name}.{node.name}"
    yield f"#### {whole}"
    if member.is_property:
        returned = f": {annotation(node.returns)}" if node.returns else ""
        yield fence("py", f"{name.rpartition('.')[2]}.{node.name}{returned}")
    else:
        yield fence("py", signature(f"{name.rpartition('.')[2]}.{node.name}", node, is_method=True))
    yield from blocks(doc_of(node), own=whole)


@cache
def parsed(home: str) -> ast.Module:
    """Return the syntax tree of a module of ckaudit."""
    return ast.parse((ROOT / "ckaudit" / home).read_text(encoding="utf-8"))


def find(name: str) -> Node:
    """Return the definition of a public name."""
    return _defined(HOMES.get(name, "api/__init__.py"), name.rpartition(".")[2])


def _defined(home: str, name: str) -> Node:
    return next(node for node in parsed(home).body if isinstance(node, Function | ast.ClassDef) and node.name == name)


def doc_of(node: Node) -> str:
    """Return a docstring without its indentation."""
    return inspect.cleandoc(ast.get_docstring(node) or "")


def constructor(node: ast.ClassDef) -> Function | None:
    """Return the constructor of a class, for a struct without one made from its fields; None if it has none of its own."""
    for each in node.body:
        if isinstance(each, Function) and each.name == "__init__":
            return each
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    if not fields:
        return None
    listed = ", ".join(ast.unparse(each) for each in fields)
    made = ast.parse(f"def __init__(self, *, {listed}): ...").body[0]
    return made if isinstance(made, Function) else None


def members(name: str) -> dict[str, Member]:
    """Return the public methods and properties of a class by name: its own, then those of its bases in ckaudit."""
    found = _members(HOMES.get(name, "api/__init__.py"), name.rpartition(".")[2])
    return {each: found[each] for each in SHOWN.get(name, found)}


def _members(home: str, name: str) -> dict[str, Member]:
    node = _defined(home, name)
    found: dict[str, Member] = {}
    for each in node.body:
        if isinstance(each, Function) and not each.name.startswith("_") and not OF_TRAINERS.fullmatch(each.name):
            decorators = {ast.unparse(decorator) for decorator in each.decorator_list}
            found[each.name] = Member(each, is_property="property" in decorators)
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        if above := _home_of(home, ast.unparse(base)):
            found |= {each: member for each, member in _members(above, ast.unparse(base)).items() if each not in found}
    return found


def _home_of(home: str, name: str) -> str:
    """Return the module of ckaudit from which a module imports a name; empty if the name is its own or not from ckaudit."""
    for each in parsed(home).body:
        if (
            isinstance(each, ast.ImportFrom)
            and (each.module or "").startswith("ckaudit.")
            and name in {a.name for a in each.names}
        ):
            return (each.module or "").removeprefix("ckaudit.").replace(".", "/") + ".py"
    return home if name in {each.name for each in parsed(home).body if isinstance(each, ast.ClassDef)} else ""


# Signatures: on one line if they fit, otherwise one argument on a line.
def signature(name: str, node: Function, *, is_method: bool = False) -> str:
    """Return a name with its arguments and its return type."""
    listed = arguments(node.args, is_method=is_method)
    returned = "" if node.returns is None or node.name == "__init__" else f" -> {annotation(node.returns)}"
    line = f"{name}({', '.join(listed)}){returned}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in listed), f"){returned}"])


def arguments(given: ast.arguments, *, is_method: bool) -> list[str]:
    """Return the arguments as written, without `self` or `cls` for a method."""
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + [*given.defaults]
    listed = [_argument(each, default) for each, default in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        listed.insert(len(given.posonlyargs), "/")
    listed = listed[1:] if is_method else listed
    if given.vararg:
        listed.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        listed.append("*")
    listed += [_argument(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*listed, *(["**" + _argument(given.kwarg, None)] if given.kwarg else [])]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    typed = f"{argument.arg}: {annotation(argument.annotation)}" if argument.annotation else argument.arg
    if default is None:
        return typed
    value = ast.unparse(default).replace("'", '"')
    return f"{typed} = {value}" if argument.annotation else f"{typed}={value}"


def annotation(node: ast.expr | None) -> str:
    """Return a type as written, without the quotes of a forward reference."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "" if node is None else ast.unparse(node)


# Docstrings as Markdown: paragraphs, examples, and the sections of Google's style.
def blocks(doc: str, *, own: str) -> Iterator[str]:
    """Yield the parts of a docstring as Markdown."""
    for part in re.split(r"\n\n+(?!    )", doc):
        head, _, rest = part.partition("\n")
        if head.removesuffix(":") in SECTIONS and head.endswith(":"):
            yield f"**{TITLES[head[:-1]]}**\n\n" + "\n".join(items(rest, own=own))
        elif head.startswith(">>>"):
            yield fence("pycon", part)
        elif part.partition("::\n")[1]:
            text, _, sketch = part.partition("::\n")
            yield words(" ".join(text.split()), own=own) + ":"
            yield fence("python", inspect.cleandoc("\n" + sketch))
        else:
            yield words(" ".join(part.split()), own=own)


def items(text: str, *, own: str) -> Iterator[str]:
    """Yield the items of a section, one on a line; a section without names is one sentence."""
    for each in re.split(r"\n(?=\S)", inspect.cleandoc(text)):
        named = re.match(r"(\*{0,2}[\w.]+): (.+)", each, re.DOTALL)
        if named:
            yield f"- {_linked(f'`{named[1]}`', own)}: {words(' '.join(named[2].split()), own=own)}"
        else:
            yield words(" ".join(each.split()), own=own)


def words(text: str, *, own: str) -> str:
    """Return prose as Markdown: code stays as it is, and a public name in code links to its page.

    >>> words("a < b, as `Watch` or `x < y`", own="")
    'a &lt; b, as [`Watch`](#watch) or `x < y`'
    """
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(_linked(part, own) if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    tame = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"(\*\w[\w ]*\w\*)|\*", lambda star: star[1] or "\\*", tame)  # stars around words are emphasis


def _linked(span: str, own: str) -> str:
    name = span.strip("`")
    return f"[{span}](#{anchors()[name]})" if name in anchors() and name not in (own, own.rpartition(".")[0]) else span


@cache
def anchors() -> dict[str, str]:
    """Return the anchor of each name's heading: lower case without dots, and with a number from the second occurrence on."""
    found: dict[str, str] = {}
    for names in GROUPS.values():
        for name in names:
            own = members(name) if isinstance(find(name), ast.ClassDef) else ()
            for heading in (name, *(f"{name}.{each}" for each in own)):
                bare = heading.lower().replace(".", "")
                before = sum(anchor.partition("-")[0] == bare for anchor in found.values())
                found[heading] = f"{bare}-{before}" if before else bare
    return found


def fence(language: str, *lines: str) -> str:
    """Return lines as a block of code."""
    return "\n".join([f"```{language}", *lines, "```"])
