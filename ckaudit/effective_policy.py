"""The policy that holds where a command or a function is called: found, read, and every name in it known."""

import os
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.policy.acceptance import AcceptanceCriteria
from ckaudit.policy.policy_schema import Policy
from ckaudit.policy.read import find, named, read_policy

PolicyNamed = str | os.PathLike[str] | Literal[False] | None
"""A policy as a function is told of it: its file; None: the one that the command line would follow here; False: none."""


class EffectivePolicy(NamedTuple):
    """A policy that holds.

    Attributes:
        policy: What it says; None: there is none.
        hints: What its author should change, such as the old name of a threshold; a sentence each.
    """

    policy: Policy | None
    hints: list[str]


def policy_as_written(config: str = "") -> Policy | None:
    """Return the policy that holds here, as its file has it; None: there is none.

    Args:
        config: Its file; empty: ckaudit.toml or [tool.ckaudit] of the working folder, or of the nearest one above.

    Raises:
        UsageError: Where that file is not there, or is none.
    """
    path = named(Path(config)) if config else find(Path.cwd())
    return None if path is None else read_policy(path, config or os.path.relpath(path))


def effective_policy(config: str = "") -> EffectivePolicy:
    """Return the policy that holds here, its thresholds by their names of today.

    Args:
        config: As of `policy_as_written`.

    Raises:
        UsageError: As of `policy_as_written`, and where a name in it means nothing.
    """
    written = policy_as_written(config)
    if written is None:
        return EffectivePolicy(None, [])
    from ckaudit.audit.judge import kinds_of_questions
    from ckaudit.explain.names import kinds
    from ckaudit.policy.configure_rules import check, with_present_names
    from ckaudit.rules import rules

    policy, hints = with_present_names(written, rules().values())
    return EffectivePolicy(check(policy, rules().values(), [*kinds().values(), *kinds_of_questions()]), hints)


def import_options_under(
    policy: Policy | None,
    *,
    columns: Mapping[str, str],
    run: str = "",
    tau_slices: tuple[str, str] | None = None,
    units: Mapping[str, str] | None = None,
) -> ImportOptions:
    """Return how a run is to be read: what the user says, and the columns that a policy names.

    Args:
        policy: The policy that holds; None: none.
        columns: The log's own name for a catalogue name; these go before the policy's.
        run: Which of several runs in one source.
        tau_slices: The easy and the hard slice.
        units: The units of shares.
    """
    named_columns, file = ({}, "") if policy is None else (policy.columns, policy.file)
    return ImportOptions(
        columns=columns, run=run, tau_slices=tau_slices, units=units or {}, remembered=named_columns, policy=file
    )


def criteria_of(policy: PolicyNamed) -> AcceptanceCriteria:
    """Return what findings are held against where a function was given a policy, or none.

    What its author should change is a warning.

    Args:
        policy: As `PolicyNamed` has it.

    Raises:
        UsageError: As of `effective_policy`.
    """
    if policy is False:
        return AcceptanceCriteria(today=datetime.now(UTC).date())
    held, hints = effective_policy("" if policy is None else str(named(Path(policy), "policy")))
    for hint in hints:
        warnings.warn(hint, FutureWarning, stacklevel=3)
    return AcceptanceCriteria(policy=held, today=datetime.now(UTC).date())
