"""The operands of a comparison: a run, a checkpoint file, or one checkpoint of a run as in runs/nano@500."""

from pathlib import Path
from typing import NamedTuple

from ckaudit.errors import UnreadableError, UsageError

LAST = "last"
MAX_HINTED_STEPS = 3  # steps named in a hint
MAX_SUBJECTS = 20  # subjects that a table can still distinguish
HEAD = b'"ck.analysis.v'
HEAD_BYTES = 4096


class Operand(NamedTuple):
    """One subject.

    Attributes:
        name: Name as the user wrote it.
        path: The run or the file.
        is_checkpoint: Whether it is a single checkpoint.
    """

    name: str
    path: Path
    is_checkpoint: bool


def parse_operand(word: str) -> Operand:
    """Return the operand that a word names; an existing path that contains an @ takes precedence.

    Raises:
        UnreadableError: If there is no such run, or no such checkpoint in it.
    """
    path = Path(word)
    if path.exists() or path.is_symlink():
        return Operand(word, path, _is_checkpoint(path))
    run, at, step = word.rpartition("@")
    if not (at and run and Path(run).exists()):
        raise UnreadableError(f"{word} does not exist", hint="Name a run folder, a checkpoint file or another program's log.")
    return Operand(word, _checkpoint_of(Path(run), step), is_checkpoint=True)


def are_checkpoints(subjects: list[Operand]) -> bool:
    """Return whether single checkpoints are compared.

    Raises:
        UsageError: If there are too many subjects, or checkpoints among runs.
    """
    if len(subjects) > MAX_SUBJECTS:
        raise UsageError(f"{len(subjects)} subjects are too many to compare at once", hint=f"name at most {MAX_SUBJECTS}")
    kinds = {operand.is_checkpoint for operand in subjects}
    if len(kinds) > 1:
        one = next(operand for operand in subjects if operand.is_checkpoint)
        run = next(operand for operand in subjects if not operand.is_checkpoint)
        raise UsageError(
            f"{one.name} is one checkpoint and {run.name} a run", hint=f"name a checkpoint of it too: {run.name}@last"
        )
    return kinds == {True}


def named_twice(subjects: list[Operand]) -> list[str]:
    """Return a sentence for each run or file that was named more than once, under any name."""
    named: dict[Path, list[str]] = {}
    for operand in subjects:
        named.setdefault(operand.path.resolve(), []).append(operand.name)
    return [f"{names[0]} was named twice: it is compared with itself" for names in named.values() if len(names) > 1]


def _is_checkpoint(path: Path) -> bool:
    """Tell a checkpoint file from runs and logs, by its name or its first bytes."""
    if not path.is_file():
        return False
    from ckaudit.contract.io.files import CHECKPOINT_NAME

    if CHECKPOINT_NAME.match(path.name):
        return True
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:
        return False
    return head.lstrip().startswith(b"{") and HEAD in head and b'"checkpoints"' not in head


def _checkpoint_of(run: Path, step: str) -> Path:
    """Return the file of one step of a run."""
    if not run.is_dir():
        raise UnreadableError(f"{run} is no run folder, so it has no checkpoint @{step}", hint="name the file alone")
    from ckaudit.diff.checkpoint_values import checkpoints_of  # imported late: every command loads this module

    files = checkpoints_of(run)
    if not files:
        raise UnreadableError(f"{run} holds no checkpoint", hint="Name a folder that a recorder wrote.")
    if step == LAST:
        return files[max(files)].path
    if not (step.isascii() and step.isdecimal()):
        raise UsageError(f"@{step} names no checkpoint", hint=f"write a step, as in {run}@{max(files)}, or {run}@{LAST}")
    if int(step) not in files:
        near = sorted(sorted(files, key=lambda file: abs(file - int(step)))[:MAX_HINTED_STEPS])
        hint = f"the nearest are {', '.join(map(str, near))}"
        raise UnreadableError(f"{run} has no checkpoint of step {int(step)}", hint=hint)
    return files[int(step)].path
