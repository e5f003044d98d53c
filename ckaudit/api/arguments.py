"""Arguments of the functions: runs, columns and a policy, turned into what the engine takes."""

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
"""What `Path` makes of an address."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Settings(NamedTuple):
    """How runs are read, and what findings are held against."""

    import_options: ImportOptions
    criteria: AcceptanceCriteria


def settings(policy: PolicyNamed, *, columns: Mapping[str, str] | None = None, which: str = "") -> Settings:
    """Return how runs are read and judged, as the command line does under the same policy.

    Raises:
        UsageError: Where the policy is not what it should be.
    """
    criteria = criteria_of(policy)
    return Settings(import_options_under(criteria.policy, columns=columns or {}, run=which), criteria)


def path_of(run: RunPath) -> Path:
    """Return the path of a run, which is there: of one at an address, that of its copy on this machine.

    Raises:
        UnreadableError: Where it is not, or may not be read.
        UsageError: Where nothing reads such addresses.
    """
    path = local_copy(run)
    if not path.exists():
        hint = f"It was looked for from {visible(str(Path.cwd()))}."
        if SWALLOWED.match(str(path)):
            hint = "An address is given as a text: a Path swallows one of its slashes."
        raise UnreadableError(f"{visible(str(path))} does not exist", hint=hint)
    return path


def path_or_run(run: RunPath | Run) -> Path | Run:
    """Return a run that is in memory as it is, else the path of one, as `path_of` does."""
    return run if isinstance(run, Run) else path_of(run)


def naming_addresses(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Have the errors of a function call a run as the user did, and not by the path of its copy."""

    @wraps(function)
    def call(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return function(*given, **named)
        except CkauditError as error:
            error.args = tuple(as_given(argument) if isinstance(argument, str) else argument for argument in error.args)
            error.hint = as_given(error.hint)
            raise

    return call
