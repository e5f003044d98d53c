"""Arguments of the functions (runs, columns and a policy) converted to what the engine takes."""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.effective_policy import PolicyNamed, criteria_of, import_options_under
from ckaudit.errors import CkauditError, UnreadableError
from ckaudit.policy.acceptance import AcceptanceCriteria
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
    return Settings(import_options_under(criteria.policy, columns=columns or {}, run=which), criteria)


def path_of(run: RunPath) -> Path:
    """Return the path of an existing run; for an address, the path of the copy on this machine.

    Raises:
        UnreadableError: Where the run does not exist or may not be read.
        UsageError: Where no reader exists for such addresses.
    """
    path = local_copy(run)
    if not path.exists():
        hint = f"It was looked for from {visible(str(Path.cwd()))}."
        if SWALLOWED.match(str(path)):
            hint = "An address is given as a text: a Path swallows one of its slashes."
        raise UnreadableError(f"{visible(str(path))} does not exist", hint=hint)
    return path


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
