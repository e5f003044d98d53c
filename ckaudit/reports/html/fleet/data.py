"""The data for the overview's script: curves thinned once more, findings, and the facts that distinguish runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from shlex import quote
from typing import Any
from urllib.parse import quote as quote_path

from ckaudit.contract.schema.fleet import Curve, Fleet, FleetRun
from ckaudit.reports.escape import visible
from ckaudit.reports.fleet import problem_of, severity_word

MAX_RUNS = 5000
"""Maximum runs on the page; the data set has all."""
MAX_CURVES, MAX_POINTS = 1000, 40
MAX_FINDINGS = 8
MAX_FACTS, MAX_GROUPS = 24, 12
"""Maximum number of facts by which curves can be grouped, and of values that one may have."""
MAX_LETTERS = 160
BADGES = {"well": "clear", "limited": "sev2", "open": "sev2", "error": "sev1", "unreadable": "sev2"}
"""Colours of the words that are not a severity."""
LETTERS = {
    "sev0": "0",
    "sev1": "1",
    "sev2": "2",
    "note": "n",
    "well": "w",
    "not_judged": "?",
    "not_applicable": "-",
    "disabled": "-",
}
"""A letter for each state of a vital check; `!` for all checks of a run that was not audited."""


def checks_of(fleet: Fleet) -> list[str]:
    """Return the names of the vital checks, in the order of the runs."""
    return list(dict.fromkeys(check for run in fleet.runs for check in run.vital))


def states_of(run: FleetRun, checks: Sequence[str]) -> str:
    """Return a letter for each vital check."""
    if run.status != "audited":
        return "!" * len(checks)
    return "".join(LETTERS[run.vital.get(check, "not_applicable")] for check in checks)


def facts_shown(fleet: Fleet) -> list[str]:
    """Return the facts that distinguish runs: the requested ones, and those with few values."""
    runs = fleet.runs[:MAX_RUNS]
    values: dict[str, Counter[str]] = {}
    for run in runs:
        for name, value in run.facts.items():
            values.setdefault(name, Counter())[value] += 1
    shared = {cause.name for cause in fleet.common_causes if cause.name in values}
    few = [name for name, counts in values.items() if 1 < len(counts) <= MAX_GROUPS and len(counts) <= len(runs) / 2]
    return list(dict.fromkeys([*fleet.grouped_by, *sorted(shared), *sorted(few)]))[:MAX_FACTS]


def data_of(fleet: Fleet, links: Mapping[str, str]) -> dict[str, Any]:
    """Return all data that the script reads; the script has to build list lines the same way as `sections`."""
    runs, checks, facts = fleet.runs[:MAX_RUNS], checks_of(fleet), facts_shown(fleet)
    place = {run.run: number for number, run in enumerate(runs)}
    return {
        "checks": [check.replace("_", " ") for check in checks],
        "facts": {visible(name): [cut(run.facts.get(name, "")) for run in runs] for name in facts},
        "columns": [visible(name) for name in fleet.grouped_by if name in facts],
        "badges": BADGES,
        "causes": [[place[name] for name in cause.runs if name in place] for cause in fleet.common_causes],
        "runs": [_run(run, checks, links.get(run.run, ""), has_curve=number < MAX_CURVES) for number, run in enumerate(runs)],
    }


def _run(run: FleetRun, checks: Sequence[str], link: str, *, has_curve: bool) -> dict[str, Any]:
    return {
        "name": visible(run.run),
        "link": quote_path(link),
        "severity": severity_word(run),
        "what": first_cause(run),
        "states": states_of(run, checks),
        "since": run.first_step,
        "verdict": cut(run.verdict if run.status == "audited" else run.problem or run.verdict),
        "knob": cut(run.knob or ""),
        "command": visible(report_command(run)),
        "findings": [
            [finding.severity, finding.code, finding.first_step, cut(finding.message)] for finding in run.findings[:MAX_FINDINGS]
        ],
        "more": max(0, len(run.findings) - MAX_FINDINGS),
        "loss": _thinned(run.loss) if run.loss is not None and has_curve else None,
    }


def first_cause(run: FleetRun) -> str:
    """Return the text of a run in the list: its first cause, or why it was not audited."""
    return visible(problem_of(run) if severity_word(run) != "well" else "")


def report_command(run: FleetRun) -> str:
    """Return the command that makes the report of a run; it names the run if the file holds several."""
    which = run.run.removeprefix(f"{run.source}#") if run.source else ""
    return f"ckaudit report {quote(run.source or run.run)}" + (f" --run {quote(which)}" if which else "")


def cut(words: str) -> str:
    """Return words as shown on the page: on one line, with limited length."""
    return visible(words if len(words) <= MAX_LETTERS else f"{words[: MAX_LETTERS - 3]}...")


def _thinned(curve: Curve) -> list[list[float | None]]:
    """Return steps and values with the lowest and highest of each stretch, so that no spike is lost; not finite: null."""
    values = [float(value) for value in curve.values]
    count = len(values)
    stretch = max(1, -(-2 * count // MAX_POINTS))
    kept = {0, count - 1} if count else set()
    for start in range(0, count, stretch):
        finite = [at for at in range(start, min(count, start + stretch)) if isfinite(values[at])]
        kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)} if finite else {start}
    chosen = sorted(kept)
    return [[curve.steps[at] for at in chosen], [float(f"{values[at]:.4g}") if isfinite(values[at]) else None for at in chosen]]
