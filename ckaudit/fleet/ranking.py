"""Which runs to look at first, and which groups of runs: the gravest, of these what is surest, lasts longest or was written last.

Runs are grouped by what run.json says of them: how many of each group are ill, and of what.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from ckaudit.contract.schema.fleet import FleetGroup, FleetRun
from ckaudit.contract.schema.report import SEVERITIES, Severity
from ckaudit.errors import UsageError

Place = tuple[int, float, float, float, str]
Values = tuple[str | None, ...]


def ranked(runs: Iterable[FleetRun]) -> list[FleetRun]:
    """Return runs, the most urgent first; one that could not be audited stands behind what is ill and before what is well."""
    return sorted(runs, key=place)


def place(run: FleetRun) -> Place:
    """Return by what a run is ranked."""
    sure = run.confidence if is_ill(run) and run.confidence is not None else 0.0
    return _rank(run), -sure, -lasting(run), -float(run.written), run.run


def _rank(run: FleetRun) -> int:
    """Return a place: what is ill, then what was not audited, what has notes, what was not judged in full, what is well."""
    if run.status != "audited":
        return SEVERITIES.index("note")
    if run.severity is not None:
        return SEVERITIES.index(run.severity) + (run.severity == "note")
    return len(SEVERITIES) + (2 if run.judged == "all" else 1)


def is_ill(run: FleetRun) -> bool:
    """Tell whether a run was audited and has a finding that is more than a note."""
    return run.status == "audited" and run.severity not in (None, "note")


def lasting(run: FleetRun) -> float:
    """Return which share of its record the gravest finding of a run takes, 0 where that is not known."""
    gravest = next(iter(run.findings), None)
    if gravest is None or gravest.first_step is None or not run.last_step:
        return 0.0
    end = run.last_step if gravest.last_step is None else gravest.last_step
    return (end - gravest.first_step) / run.last_step


def severity_of(runs: Iterable[FleetRun]) -> Severity | None:
    """Return the gravest finding of any run; None: there is none."""
    found = {run.severity for run in runs}
    return next((severity for severity in SEVERITIES if severity in found), None)


def fields_named(names: Sequence[str], runs: Iterable[FleetRun]) -> list[str]:
    """Return the facts that names stand for; the end of a name does where only one fact ends so, as lr of config.lr.

    Raises:
        UsageError: Where no run has such a fact, or several facts end so.
    """
    known = {name for run in runs for name in run.facts}
    return [_field(name, known) for name in names]


def _field(name: str, known: set[str]) -> str:
    if name in known or not known:
        return name
    ending = sorted(fact for fact in known if fact.endswith(f".{name}"))
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise UsageError(f"--group-by {name!r} is one of several: {', '.join(ending[:5])}", hint="name one in full")
    near = get_close_matches(name, known, n=3) or sorted(known)[:8]
    raise UsageError(f"no run says its {name!r}", hint=f"group by one of what runs say, such as {', '.join(near)}")


def groups_of(runs: Iterable[FleetRun], fields: Sequence[str]) -> list[FleetGroup]:
    """Return the groups of runs that share the values of all fields, those with the largest share of ill runs first.

    Runs that could not be audited say nothing of themselves, and make no group of their own.
    """
    members: dict[Values, list[FleetRun]] = defaultdict(list)
    for run in runs:
        members[tuple(run.facts.get(field) for field in fields)].append(run)
    groups = [_group(values, group) for values, group in members.items() if any(run.status == "audited" for run in group)]
    return sorted(
        groups, key=lambda group: (-float(group.share), -group.ill, -group.runs, [value or "" for value in group.values])
    )


def _group(values: Values, runs: Sequence[FleetRun]) -> FleetGroup:
    audited = [run for run in runs if run.status == "audited"]
    ill = [run for run in audited if is_ill(run)]
    causes = Counter(first_word(run) for run in ill)
    cause, count = min(causes.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
    return FleetGroup(
        values=list(values),
        runs=len(audited),
        ill=len(ill),
        share=len(ill) / len(audited) if audited else 0.0,
        not_audited=len(runs) - len(audited),
        cause=cause,
        with_cause=count,
    )


def first_word(run: FleetRun) -> str:
    """Return the first cause of a run, or its gravest finding where no cause is known."""
    return run.cause or next((finding.name for finding in run.findings), "")
