"""Recorded trainings, one file each, so that scoring needs no training; hashes of code and plan show whether they are valid."""

import ast
import functools
import os
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from inspect import getmro, getsourcefile
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from ckaudit import __version__
from ckaudit.contract.io.files import REFERENCE_NAME
from ckaudit.errors import UnreadableError
from ckaudit.lab import archive
from ckaudit.lab.change import Change
from ckaudit.lab.training_spec import Recipe

State = Literal["missing", "unreadable", "stale", "older", "fresh"]
LEFT_OUT = (REFERENCE_NAME,)  # read by a recorder that resumes, never by an audit
HERE = Path(__file__).parent
LABELS_ONLY = ("specs.py", "labels.py")
LOOP = ("change.py", "corpora", "models", "plan.py", "task.py", "training.py")
LABELS = ("fault", "control")  # decorators that label a change, without affecting it


class CachedTraining(Struct, frozen=True, kw_only=True):
    """The state of one training in the cache.

    Attributes:
        recipe: The training.
        path: Its file, which may not exist.
        state: "stale": from another change or plan; "older": from another loop or recorder, but still usable.
        why: What has changed, or what is wrong with the file.
    """

    recipe: Recipe
    path: Path
    state: State
    why: str = ""

    @property
    def usable(self) -> bool:
        """Whether it can be scored."""
        return self.state in ("fresh", "older")


def default_folder() -> Path:
    """Return the folder of recordings: `$XDG_CACHE_HOME/ckaudit/lab`, or `~/.cache/ckaudit/lab`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "ckaudit" / "lab"


def cached_training(cache: Path, recipe: Recipe) -> CachedTraining:
    """Return the state of a training in the cache."""
    path = cache / f"{recipe.name}.{recipe.seed}.tar.zst"
    if not path.exists():
        return CachedTraining(recipe=recipe, path=path, state="missing")
    try:
        then = msgspec.json.decode(archive.read_provenance(path), type=Provenance)
    except (UnreadableError, msgspec.DecodeError) as error:
        return CachedTraining(recipe=recipe, path=path, state="unreadable", why=str(error))
    now = provenance_of(recipe)
    if not (why := ", ".join(differences(then, now))):
        return CachedTraining(recipe=recipe, path=path, state="fresh")
    return CachedTraining(recipe=recipe, path=path, state="stale" if must_be_trained_again(then, now) else "older", why=why)


def keep(cache: Path, recipe: Recipe, folder: Path) -> int:
    """Put a run folder into the cache, and return the size of its file in bytes."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{recipe.name}.{recipe.seed}.tar.zst"
    return archive.write(folder, msgspec.json.encode(provenance_of(recipe)), path, without=LEFT_OUT)


# The inputs of a recording: code of the change, plan, code of the loop, version of the recorder.
class Provenance(Struct, frozen=True, kw_only=True):
    """The provenance of a recording.

    Attributes:
        name: Name of the training.
        seed: Its seed.
        change: Hash of the change's code and amount, without its docstrings and labels.
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


def provenance_of(recipe: Recipe) -> Provenance:
    """Return the provenance that a recording of a recipe would have now."""
    amount = f"{recipe.amount.onset} {recipe.amount.strength}"
    kinds = [(Path(file), kind.__name__) for kind in getmro(type(recipe.change)) if (file := _own_file(kind))]
    codes = [code(file, name) for file, name in kinds]
    return Provenance(
        name=recipe.name,
        seed=recipe.seed,
        change=_digest(
            amount, *map(_without_imports, [*codes, *(code(*part) for part in helpers(codes, [file for file, _ in kinds]))])
        ),
        plan=_digest(spelled(recipe.change.plan(recipe.plan))),
        loop=_loop(),
        recorder=__version__,
    )


def differences(then: Provenance, now: Provenance) -> list[str]:
    """Return in words what has changed since a recording was made."""
    words = {"change": "its change", "plan": "its plan", "loop": "the training loop", "recorder": "the recorder's version"}
    return [word for part, word in words.items() if getattr(then, part) != getattr(now, part)]


def must_be_trained_again(then: Provenance, now: Provenance) -> bool:
    """Tell whether a recording is of another training; a newer loop or recorder alone does not count."""
    return (then.change, then.plan) != (now.change, now.plan)


def spelled(plan: Any) -> str:
    """Return a plan as text without its defaults, so that a new option does not change the text of old plans.

    >>> from ckaudit.lab.plan import Mlp, Plan
    >>> spelled(Plan(model=Mlp(depth=2), seed=1))
    'Plan(model=Mlp(depth=2), seed=1)'
    """
    if not isinstance(plan, Struct):
        return repr(plan)
    options = ((field.name, getattr(plan, field.name), field.default) for field in fields(plan))
    return (
        f"{type(plan).__name__}({', '.join(f'{name}={spelled(value)}' for name, value, default in options if value != default)})"
    )


@functools.cache
def code(path: Path, name: str | None = None) -> str:
    """Return the normalised code of a file, or of a class and what it uses of its file, without comments and docstrings.

    Args:
        path: The file.
        name: Name of the class; None: the whole file.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if name is not None:
        tree.body = list(_used(tree.body, name))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.decorator_list = [decorator for decorator in node.decorator_list if not _is_label(decorator)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _without_imports(text: str) -> str:
    """Return code without imports of our own: the place of a helper does not matter, and its code is hashed separately."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [child for child in body if not _is_own_import(child)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_own_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("ckaudit.")


def helpers(codes: Sequence[str], known: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return the imports of some code from the lab's files, recursively, that other trainings may not have.

    Args:
        codes: The code.
        known: The files of the code.

    Returns:
        Each file with the name imported from it; the rest of the file does not count.
    """
    imported: list[tuple[Path, str]] = []
    texts = list(codes)
    for text in texts:  # the list grows during the loop
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ckaudit.lab."):
                other = (HERE / (node.module or "").removeprefix("ckaudit.lab.").replace(".", "/")).with_suffix(".py")
                is_shared = other.name in (*LOOP, *LABELS_ONLY) or other.parent.name in LOOP
                for name in [alias.name for alias in node.names] if other.is_file() and not is_shared else ():
                    if other not in known and (other, name) not in imported:
                        imported.append((other, name))
                        texts.append(code(other, name))
    return imported


def _used(body: Sequence[ast.stmt], name: str) -> Iterator[ast.stmt]:
    """Yield the statements of a module that a class needs, with imports reduced to the used names."""
    own = {defined: statement for statement in body for defined in _defined(statement)}
    used, waiting = set[str](), [name]
    while waiting:
        used.add(last := waiting.pop())
        waiting += _names(own[last]) - used if last in own else ()
    for statement in body:
        if isinstance(statement, ast.If):
            statement.body = list(_used_imports(statement.body, used))
            yield from [statement] if statement.body else []
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from _used_imports([statement], used | {"TYPE_CHECKING"} if _checks_types(body, used) else used)
        elif _defined(statement) & used:
            yield statement


def _used_imports(body: Sequence[ast.stmt], used: frozenset[str] | set[str]) -> Iterator[ast.stmt]:
    for statement in body:
        assert isinstance(statement, ast.Import | ast.ImportFrom)
        statement.names = [alias for alias in statement.names if (alias.asname or alias.name).partition(".")[0] in used]
        if statement.names:
            yield statement


def _checks_types(body: Sequence[ast.stmt], used: frozenset[str] | set[str]) -> bool:
    """Tell whether a used name is imported for the type checker only."""
    inside = (alias for node in body if isinstance(node, ast.If) for statement in node.body for alias in statement.names)  # type: ignore[attr-defined]
    return any((alias.asname or alias.name) in used for alias in inside)


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return {statement.name}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement uses, including those in quoted annotations."""
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    quoted = [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return names.union(*(re.findall(r"\w+", text) for text in quoted if re.fullmatch(r"[\w.\[\], |]+", text)))


def _is_label(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in LABELS


def _own_file(kind: type) -> str | None:
    return getsourcefile(kind) if kind is not Change and issubclass(kind, Change) else None


@functools.cache
def _loop() -> str:
    files = [file for name in LOOP for file in (sorted((HERE / name).glob("*.py")) or [HERE / name])]
    return _digest(*map(code, files))


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]
