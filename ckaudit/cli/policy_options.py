"""The options for acceptance: the policy, and the accepted findings."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.output import say
from ckaudit.errors import CkauditError, UsageError

if TYPE_CHECKING:
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.contract.schema.report import Report, Severity
    from ckaudit.policy.acceptance import AcceptanceCriteria
    from ckaudit.policy.policy_schema import Policy

Config = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Policy file. Default: ckaudit.toml or [tool.ckaudit] in this folder or above.",
        show_default=False,
    ),
]
NoConfig = Annotated[bool, typer.Option("--no-config", help="Ignore any policy.")]
BaselineFile = Annotated[
    str, typer.Option("--baseline", metavar="FILE", help="Findings accepted in FILE do not count.", show_default=False)
]
Like = Annotated[
    list[str] | None,
    typer.Option(
        "--like",
        metavar="PATTERN",
        help="Healthy runs of the same configuration, as in 'good/*'; may be repeated. Values outside their band are "
        "findings; findings that they share are normal.",
        show_default=False,
    ),
]
Update = Annotated[bool, typer.Option("--update-baseline", help="Accept all current findings: write them to --baseline.")]


def read_acceptance(command: str, *, config: str, no_config: bool, baseline: str, update: bool) -> "AcceptanceCriteria":
    """Return policy and baseline from the options.

    Raises:
        UsageError: If they contradict each other, or a file is invalid.
    """
    if config and no_config:
        raise UsageError("--config and --no-config contradict each other", hint="give one of them")
    if update and not baseline:
        raise UsageError("--update-baseline without --baseline", hint="name the file: --baseline ckaudit-baseline.json")
    from ckaudit.policy.acceptance import AcceptanceCriteria
    from ckaudit.policy.baseline import Baseline, read_baseline

    file, accepted = Path(baseline), None
    if baseline:
        entries = [] if update and not file.exists() else read_baseline(file)
        accepted = Baseline(file=baseline, entries=[entry for entry in entries if entry.command == command], adopts=update)
    return AcceptanceCriteria(policy=None if no_config else _policy(config), baseline=accepted, today=datetime.now(UTC).date())


def hold_like(
    criteria: "AcceptanceCriteria", like: Sequence[str] | None, runs: Sequence[str], import_options: "ImportOptions"
) -> "AcceptanceCriteria":
    """Return criteria that also compare runs with the healthy siblings of --like; unchanged without it."""
    if not like:
        return criteria
    from ckaudit.cli.output import progress
    from ckaudit.fleet.like import criteria_like

    with progress("reading siblings") as tick:
        return criteria_like(criteria, like, runs=[Path(run) for run in runs], import_options=import_options, progress=tick)


def failing_severity(asked: str, criteria: "AcceptanceCriteria") -> "Severity":
    """Return the mildest severity that fails a command without profiles: the user's, the policy's, or sev1."""
    from ckaudit.cli.options import severity

    return severity(asked) if asked else (criteria.policy and criteria.policy.base.fail_on) or "sev1"


def write_baseline(report: "Report", criteria: "AcceptanceCriteria") -> None:
    """Write the baseline again if requested; entries of other commands stay."""
    if criteria.baseline is None or not criteria.baseline.adopts:
        return
    from ckaudit.contract.io.files import write_atomic
    from ckaudit.policy.acceptance import adopted_findings
    from ckaudit.policy.baseline import file_of, read_baseline
    from ckaudit.reports.json import dumps

    path = Path(criteria.baseline.file)
    others = [accepted for accepted in (read_baseline(path) if path.exists() else []) if accepted.command != report.command]
    entries = adopted_findings(report, criteria.baseline)
    try:
        write_atomic(path, dumps(file_of([*others, *entries])).encode())
    except OSError as error:
        raise CkauditError(f"cannot write {path}: {error.strerror}", hint="choose another --baseline") from None
    dropped = sum(entry not in entries for entry in criteria.baseline.entries)
    say(f"wrote {path}: {len(entries)} accepted" + (f", {dropped} dropped or renewed" if dropped else ""))


def _policy(config: str) -> "Policy | None":
    from ckaudit.effective_policy import effective_policy

    policy, hints = effective_policy(config)
    for hint in hints:
        say(hint)
    return policy
