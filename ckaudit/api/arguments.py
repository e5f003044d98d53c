"""What the functions are told of runs, columns and a policy, as the engine takes it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ckaudit.contract.schema.import_options import Choice
from ckaudit.effective_policy import PolicyNamed, choice_under, gate_of
from ckaudit.errors import UnreadableError
from ckaudit.policy.gate import Gate
from ckaudit.reports.escape import visible
from ckaudit.run.run import Run

RunPath = str | os.PathLike[str]

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""How an address begins; a drive of Windows is one letter."""


class Settings(NamedTuple):
    """How runs are read, and what findings are held against."""

    choice: Choice
    gate: Gate


def settings(policy: PolicyNamed, *, columns: Mapping[str, str] | None = None, which: str = "") -> Settings:
    """Return how runs are read and judged, as the command line does under the same policy.

    Raises:
        UsageError: Where the policy is not what it should be.
    """
    gate = gate_of(policy)
    return Settings(choice_under(gate.policy, columns=columns or {}, run=which), gate)


def path_of(run: RunPath) -> Path:
    """Return the path of a run, which is there.

    Raises:
        UnreadableError: Where it is not, or is an address of another machine.
    """
    path = _of_address(run) if isinstance(run, str) and ADDRESS.match(run) else Path(run)
    if not path.exists():
        here = visible(str(Path.cwd()))
        raise UnreadableError(f"{visible(str(path))} does not exist", hint=f"It was looked for from {here}.")
    return path


def path_or_run(run: RunPath | Run) -> Path | Run:
    """Return a run that is in memory as it is, else the path of one, as `path_of` does."""
    return run if isinstance(run, Run) else path_of(run)


def _of_address(address: str) -> Path:
    parts = urlsplit(address)
    if parts.scheme.lower() == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    raise UnreadableError(
        f"{visible(address)} is not on this machine", hint="Copy it here, and name its path or a file:// address."
    )
