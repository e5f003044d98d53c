"""The policy that applies to a call of a command or function: found, read, and every name in it checked."""

import os
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UsageError
from ckaudit.policy.acceptance import AcceptanceCriteria
from ckaudit.policy.policy_schema import Policy
from ckaudit.policy.read import find, named, read_policy

PolicyNamed = str | os.PathLike[str] | Literal[False] | None
"""How a function is given a policy: its file; None: the one that the command line would use here; False: none."""


class EffectivePolicy(NamedTuple):
    """The policy that applies.

    Attributes:
        policy: Its contents; None: there is none.
        hints: What its author should change, such as the old name of a threshold; one sentence each.
    """

    policy: Policy | None
    hints: list[str]


def policy_as_written(config: str = "") -> Policy | None:
    """Return the policy that applies here, as written in its file; None: there is none.

    Args:
        config: Its file; empty: ckaudit.toml or [tool.ckaudit] of the working folder, or of the nearest folder above.

    Raises:
        UsageError: If that file does not exist or is not a policy.
    """
    path = named(Path(config)) if config else find(Path.cwd())
    return None if path is None else read_policy(path, config or os.path.relpath(path))


def effective_policy(config: str = "") -> EffectivePolicy:
    """Return the policy that applies here, its thresholds by their current names.

    Args:
        config: As for `policy_as_written`.

    Raises:
        UsageError: As for `policy_as_written`, and if a name in it is unknown.
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
    """Return how a run is to be read: the user's options, and the columns that a policy names.

    Args:
        policy: The policy that applies; None: none.
        columns: The log's own name for each catalogue name; these take precedence over the policy's.
        run: Which of several runs in one source to read.
        tau_slices: The easy and the hard slice.
        units: The units of shares.
    """
    named_columns, file = ({}, "") if policy is None else (policy.columns, policy.file)
    return ImportOptions(
        columns=columns, run=run, tau_slices=tau_slices, units=units or {}, remembered=named_columns, policy=file
    )


def criteria_of(policy: PolicyNamed) -> AcceptanceCriteria:
    """Return the criteria that findings are compared with, for a function that was given a policy or none.

    What the policy's author should change is issued as a warning.

    Args:
        policy: See `PolicyNamed`.

    Raises:
        UsageError: As for `effective_policy`.
    """
    if policy is not None and policy is not False and not isinstance(policy, str | os.PathLike):
        raise UsageError(f"policy: {policy!r} is no path of a policy", hint="name its file; None: find it, False: none")
    if policy is False:
        return AcceptanceCriteria(today=datetime.now(UTC).date())
    held, hints = effective_policy("" if policy is None else str(named(Path(policy), "policy")))
    for hint in hints:
        warnings.warn(hint, FutureWarning, stacklevel=3)
    return AcceptanceCriteria(policy=held, today=datetime.now(UTC).date())
