"""Arguments of the functions (runs, columns and a policy) converted to what the engine takes."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, SupportsIndex, TypeVar

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.effective_policy import PolicyNamed, criteria_of, import_options_under
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.policy.acceptance import AcceptanceCriteria
from ckaudit.questions.question import PHASES
from ckaudit.remote.addresses import as_given
from ckaudit.remote.mirror import local_copy
from ckaudit.reports.escape import visible
from ckaudit.run.run import Run

RunPath = str | os.PathLike[str]

SWALLOWED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
"""An address after `Path` has dropped one of its slashes."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Settings(NamedTuple):
    """How runs are read, and the criteria that findings are judged by."""

    import_options: ImportOptions
    criteria: AcceptanceCriteria


def settings(policy: PolicyNamed, *, columns: Mapping[str, str] | None = None, which: str = "") -> Settings:
    """Return how runs are read and judged, as the command line does under the same policy.

    Raises:
        UsageError: Where the policy is wrong.
    """
    criteria = criteria_of(policy)
    return Settings(import_options_under(criteria.policy, columns=checked_columns(columns), run=str(which)), criteria)


def path_of(run: RunPath) -> Path:
    """Return the path of an existing run; for an address, the path of the copy on this machine.

    Raises:
        UnreadableError: Where the run does not exist or may not be read.
        UsageError: Where it is no path, or no reader exists for such addresses.
    """
    if not isinstance(run, str | os.PathLike):
        raise UsageError(f"{run!r} is no path of a run", hint='give a run by its path, such as "runs/nano"')
    path = local_copy(run)
    try:
        is_there = path.exists()
    except OSError as error:  # such as a name that is too long
        raise UnreadableError(f"cannot reach {visible(str(path))}: {error.strerror}") from None
    if not is_there:
        hint = f"It was looked for from {visible(str(Path.cwd()))}."
        if SWALLOWED.match(str(path)):
            hint = "An address is given as a text: a Path swallows one of its slashes."
        raise UnreadableError(f"{visible(str(path))} does not exist", hint=hint)
    return path


def whole_step(step: object) -> int | None:
    """Return a step as a whole number, None as it is.

    Raises:
        UsageError: Where it is not a whole number.

    >>> whole_step(500.0), whole_step(None)
    (500, None)
    """
    is_whole = isinstance(step, SupportsIndex) or (isinstance(step, float) and step.is_integer())
    if step is None or (is_whole and not isinstance(step, bool)):
        return None if step is None else int(step)  # type: ignore[call-overload]  # an index or a float
    raise UsageError(f"step: {step!r} is not a whole number", hint="give the number of finished updates, such as step=500")


def checked_phases(phases: object) -> list[int]:
    """Return the phases of questions.

    Raises:
        UsageError: Where one of them is none.

    >>> checked_phases({3, 1})
    [1, 3]
    """
    given: list[object] = list(phases) if isinstance(phases, Iterable) else [phases]
    whole = [phase for phase in given if isinstance(phase, int) and not isinstance(phase, bool) and phase in PHASES]
    if len(whole) < len(given):
        wrong = next(phase for phase in given if phase not in whole or isinstance(phase, bool))
        raise UsageError(f"questions: {wrong!r} is no phase", hint=f"phases are 1 to {len(PHASES)}, as in questions=[1, 4]")
    return sorted(whole)


def checked_columns(columns: object) -> Mapping[str, str]:
    """Return the columns that the user named.

    Raises:
        UsageError: Where they are not names by names.
    """
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(word, str) for pair in columns.items() for word in pair):
        raise UsageError(
            f"columns: {columns!r} does not give names by names", hint='write it like columns={"loss": "train/loss"}'
        )
    return columns


def runs_in(given: object, argument: str = "") -> list[Any]:
    """Return runs that were given one by one, in a list, or both; None is no run.

    Args:
        given: A run, or runs and lists of them.
        argument: Name of the argument for messages; empty for those without a name.

    Raises:
        UsageError: Where something else is among them.

    >>> runs_in(("a", ["b", "c"])), runs_in("a"), runs_in(None)
    (['a', 'b', 'c'], ['a'], [])
    """
    if given is None:
        return []
    if isinstance(given, str | os.PathLike | Run):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, bytes | bytearray | Mapping):
        # a list in a list in a list is a mistake
        return [run for one in given for run in (one if isinstance(one, list | tuple | set) else [one]) if _is_run(run, argument)]
    _is_run(given, argument)
    return []


def _is_run(run: object, argument: str) -> bool:
    if isinstance(run, str | os.PathLike | Run):
        return True
    place = f"{argument}: " if argument else ""
    raise UsageError(f"{place}{run!r} is no path of a run", hint="give each run by its path, one after the other or in a list")


def checked_word(word: object, choices: Sequence[str], argument: str) -> Any:
    """Return one of a few words, or raise `UsageError`.

    >>> checked_word("step", ("step", "loss"), "align")
    'step'
    """
    if isinstance(word, str) and word in choices:
        return word
    raise UsageError(f"{argument}: {word!r} is not known", hint=f"choose from {', '.join(choices)}")


def checked_workers(jobs: object) -> int | None:
    """Return a number of processes, or raise `UsageError`.

    >>> checked_workers(2), checked_workers(None)
    (2, None)
    """
    if jobs is None or (isinstance(jobs, int) and not isinstance(jobs, bool) and jobs > 0):
        return jobs
    raise UsageError(f"jobs: {jobs!r} is no number of processes", hint="give a whole number from 1 on, or None")


def checked_text(value: object, argument: str) -> str:
    """Return a text or the text of a path, or raise `UsageError`.

    >>> checked_text("dask://host:8786", "engine")
    'dask://host:8786'
    """
    if isinstance(value, str | os.PathLike) and isinstance(text := os.fspath(value), str):
        return text
    raise UsageError(f"{argument}: {value!r} is no text", hint=f'write it like {argument}="..."')


def checked_texts(values: object, argument: str) -> list[str]:
    """Return texts, given as one or as a list, or raise `UsageError`.

    >>> checked_texts("config.lr", "group_by"), checked_texts((), "group_by")
    (['config.lr'], [])
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        return [checked_text(value, argument) for value in values]
    return [checked_text(values, argument)]


def checked_names(names: Iterable[object]) -> list[str]:
    """Return the names of metrics, given one by one or in lists.

    Raises:
        UsageError: Where something else is among them.

    >>> checked_names(("val_loss", ["grad_*"]))
    ['val_loss', 'grad_*']
    """
    flat: list[Any] = [name for one in names for name in (one if isinstance(one, list | tuple | set) else [one])]
    for name in flat:
        if not isinstance(name, str):
            raise UsageError(f"{name!r} is no name of a metric", hint='give names as texts, such as "val_loss" or "grad_*"')
    return flat


def path_or_run(run: RunPath | Run) -> Path | Run:
    """Return a run in memory unchanged, else its path as `path_of` does."""
    return run if isinstance(run, Run) else path_of(run)


def naming_addresses(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Wrap a function so that its errors name a run by the address that the user gave, not by the path of its copy."""

    @wraps(function)
    def call(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return function(*given, **named)
        except CkauditError as error:
            error.args = tuple(as_given(argument) if isinstance(argument, str) else argument for argument in error.args)
            error.hint = as_given(error.hint)
            raise

    return call
