"""Arguments of the functions (runs, columns and a policy) converted to what the engine takes."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, SupportsIndex, TypeVar

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
        raise UsageError(f"{run!r} is no path of a run", hint="give each run by its path, several one after the other")
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
