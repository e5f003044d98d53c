"""A fleet in Markdown, and the sentences about it that all formats share."""

from collections import Counter
from collections.abc import Iterable, Sequence

from ckaudit.contract.schema.fleet import Fleet, FleetGroup, FleetRun
from ckaudit.contract.schema.report import SEVERITIES
from ckaudit.reports.escape import code, escaped
from ckaudit.reports.view import View
from ckaudit.reports.words import likelihood
from ckaudit.wording import first_names, plural

HEAD = ("severity", "run", "since step", "where", "first cause", "change first", "not judged")
MAX_SHARING = 5
"""Maximum number of runs named that share something."""


def markdown(fleet: Fleet, view: View) -> str:
    """Return the verdict, what unhealthy runs share, the ranked table, groups and notes."""
    shown, rest = listed_and_counted(fleet, view)
    blocks = [f"### ckaudit fleet: {escaped(fleet.verdict)}", *([by_severity(fleet)] if by_severity(fleet) else [])]
    if fleet.common_causes:
        blocks.append("#### What ill runs share")
        blocks.append("\n".join(f"- {escaped(sharing(cause.sentence, cause.runs))}" for cause in fleet.common_causes))
    if shown:
        rows = [_line([code(cell) if column == 1 else escaped(cell) for column, cell in enumerate(cells(run))]) for run in shown]
        blocks.append("\n".join([_line(HEAD), "|---" * len(HEAD) + "|", *rows]))
    blocks += [escaped(rest_sentence(rest))] if rest else []
    if fleet.groups:
        head = [*map(code, fleet.grouped_by), *GROUP_HEAD]
        rows = [_line(map(escaped, [*group_values(group), *group_cells(group)])) for group in fleet.groups]
        blocks.append("\n".join([_line(head), "|---" * len(head) + "|", *rows]))
    blocks += [f"Note: {escaped(note)}" for note in fleet.notes]
    return "\n\n".join(blocks) + "\n"


def _line(cells_of_line: Iterable[str]) -> str:
    return f"| {' | '.join(cells_of_line)} |"


def listed_and_counted(fleet: Fleet, view: View) -> tuple[list[FleetRun], list[FleetRun]]:
    """Return the runs that are listed, and those only counted: healthy ones, unless in verbose mode."""
    if view.verbose:
        return fleet.runs, []
    worth = [run for run in fleet.runs if run.status != "audited" or run.is_ill]
    names = {run.run for run in worth[: view.limit]}
    return worth[: view.limit], [run for run in fleet.runs if run.run not in names]


def cells(run: FleetRun) -> list[str]:
    """Return a row of the table, in the order of `HEAD`; unknown values are empty."""
    return [
        severity_word(run),
        run.run,
        "" if run.first_step is None else f"{run.first_step:,}",
        run.where or "",
        problem_of(run),
        run.knob or "",
        open_checks(run),
    ]


def severity_word(run: FleetRun) -> str:
    """Return the severity of a run's problems as a word."""
    if run.status != "audited":
        return run.status
    return run.severity or ("well" if run.judged == "all" else "limited" if run.judged == "limited" else "open")


def problem_of(run: FleetRun) -> str:
    """Return the first cause of a run with its likelihood, else what was found, or why the run was not audited."""
    if run.status != "audited":
        return run.problem or ""
    if run.cause_title and run.confidence is not None:
        return f"{run.cause_title.rstrip('.')} ({likelihood(run.confidence)})"
    return next((finding.message for finding in run.findings), "")


def brief(run: FleetRun) -> str:
    """Return the first cause and its confidence in few words, or the most severe finding if no cause is known."""
    if run.cause and run.confidence is not None:
        return f"{run.cause.replace('_', ' ')} {run.confidence:.2f}"
    return next((finding.name.replace("_", " ") for finding in run.findings), "")


def open_checks(run: FleetRun) -> str:
    """Return the vital checks that could not judge."""
    return ", ".join(vital.replace("_", " ") for vital, state in run.vital.items() if state == "not_judged")


def by_severity(fleet: Fleet) -> str:
    """Return counts, most severe first, such as `3 sev1, 1 note, 2 unreadable`; empty if nothing was found."""
    counts = Counter[str](run.severity or "" if run.status == "audited" else run.status for run in fleet.runs)
    return ", ".join(f"{counts[word]:,} {word}" for word in (*SEVERITIES, "error", "unreadable") if counts[word])


def rest_sentence(rest: Sequence[FleetRun]) -> str:
    """Return a sentence on the runs that are not listed one by one."""
    ill = sum(run.is_ill for run in rest)
    failed = sum(run.status != "audited" for run in rest)
    other = [run for run in rest if run.status == "audited" and not run.is_ill]
    limited = [run for run in other if run.judged != "all"]
    parts = [f"{ill:,} ill"] if ill else []
    parts += [f"{failed:,} not audited"] if failed else []
    parts += [f"{len(other) - len(limited):,} without an illness"] if len(other) > len(limited) else []
    if limited:
        missing = Counter(vital for run in limited for vital, state in run.vital.items() if state == "not_judged")
        commonest = ", ".join(f"{vital.replace('_', ' ')} in {count:,}" for vital, count in missing.most_common(3))
        parts.append(
            f"{len(limited):,} without an illness, but not judged in full" + (f" (open: {commonest})" if commonest else "")
        )
    return f"{plural(len(rest), 'more run')}: {'; '.join(parts)}. -v shows them."


def sharing(sentence: str, runs: Sequence[str]) -> str:
    """Return what runs share, with the names of the first ones."""
    return f"{sentence.rstrip('.')}. Runs: {first_names(runs, MAX_SHARING)}" if runs else sentence


GROUP_HEAD = ("runs", "ill", "share", "commonest cause")


def group_values(group: FleetGroup) -> list[str]:
    """Return the values that a group shares."""
    return ["not recorded" if value is None else value for value in group.values]


def group_cells(group: FleetGroup) -> list[str]:
    """Return the cells of a group, in the order of `GROUP_HEAD`."""
    cause = f"{group.cause.replace('_', ' ')} ({group.with_cause:,})" if group.cause else ""
    return [f"{group.runs:,}", f"{group.ill:,}", f"{100 * float(group.share):.0f} %" if group.runs else "", cause]
