"""Runs grouped by what run.json says of them: how many of each group are ill, and of what."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from ckaudit.contract.schema.fleet import FleetGroup, FleetRun
from ckaudit.errors import UsageError
from ckaudit.fleet.ranking import is_ill

Values = tuple[str | None, ...]


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
