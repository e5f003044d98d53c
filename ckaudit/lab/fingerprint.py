"""What made a recording, as hashes: code of the change, plan, code of the loop, version of the recorder."""

import ast
from functools import cache
from hashlib import sha256
from inspect import getmro, getsourcefile
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from ckaudit import __version__
from ckaudit.lab.change import Change
from ckaudit.lab.recipe import Recipe

HERE = Path(__file__).parent
LABELS_ONLY = ("story.py", "truths.py")
LOOP = ("batch.py", "change.py", "corpora", "models", "plan.py", "processes.py", "task.py", "told.py", "training.py")
LABELS = ("fault", "control")  # decorators that say what a change is, and do nothing to it


class Made(Struct, frozen=True, kw_only=True):
    """Where a recording comes from.

    Attributes:
        name: Name of the training.
        seed: Its seed.
        change: Hash of the code of the change with its amount; words and labels do not count.
        plan: Hash of the plan, the change included.
        loop: Hash of the code that all trainings share.
        recorder: Version of the recorder.
    """

    name: str
    seed: int
    change: str
    plan: str
    loop: str
    recorder: str


def made(recipe: Recipe) -> Made:
    """Return the fingerprint of what a recipe makes today."""
    amount = f"{recipe.amount.onset} {recipe.amount.strength}"
    files = [Path(file) for kind in getmro(type(recipe.change)) if (file := _own_file(kind))]
    return Made(
        name=recipe.name,
        seed=recipe.seed,
        change=_digest(amount, *map(code, with_helpers(files))),
        plan=_digest(spelled(recipe.change.plan(recipe.plan))),
        loop=_loop(),
        recorder=__version__,
    )


def differences(then: Made, now: Made) -> list[str]:
    """Return in words what is not as it was when a recording was made."""
    words = {"change": "its change", "plan": "its plan", "loop": "the training loop", "recorder": "the recorder's version"}
    return [word for part, word in words.items() if getattr(then, part) != getattr(now, part)]


def must_be_trained_again(then: Made, now: Made) -> bool:
    """Tell whether a recording is of another training; a younger loop or recorder alone is only said."""
    return (then.change, then.plan) != (now.change, now.plan)


def spelled(plan: Any) -> str:
    """Return a plan in words without its defaults, so that a new option does not make another plan of every old one.

    >>> from ckaudit.lab.plan import Mlp, Plan
    >>> spelled(Plan(model=Mlp(depth=2), seed=1))
    'Plan(model=Mlp(depth=2), seed=1)'
    """
    if not isinstance(plan, Struct):
        return repr(plan)
    told = ((each.name, getattr(plan, each.name), each.default) for each in fields(plan))
    return f"{type(plan).__name__}({', '.join(f'{name}={spelled(value)}' for name, value, default in told if value != default)})"


@cache
def code(path: Path) -> str:
    """Return the code of a file in one fixed layout, without comments, docstrings and labels."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.decorator_list = [each for each in node.decorator_list if not _is_label(each)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def with_helpers(files: list[Path]) -> list[Path]:
    """Return files of changes, and those files of the lab that they import and other trainings need not have."""
    found = list(files)
    for file in found:  # it grows under way
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ckaudit.lab."):
                other = HERE / (node.module or "").removeprefix("ckaudit.lab.").replace(".", "/")
                other = other.with_suffix(".py")
                if other.is_file() and other.name not in (*LOOP, *LABELS_ONLY) and other.parent.name not in LOOP:
                    found += [] if other in found else [other]
    return found


def _is_label(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in LABELS


def _own_file(kind: type) -> str | None:
    return getsourcefile(kind) if kind is not Change and issubclass(kind, Change) else None


@cache
def _loop() -> str:
    files = [file for name in LOOP for file in (sorted((HERE / name).glob("*.py")) or [HERE / name])]
    return _digest(*map(code, files))


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]
