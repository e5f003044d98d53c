"""What `ckaudit triage` says about 255 public training logs, whose truth was read off before any audit.

    python benchmarks/real_runs.py [--logs FOLDER] [--held-out] [--save RESULTS] [--write]

`real_runs.json` names each log: repository, commit, path, licence, checksum, and its truth: healthy, an incident with its steps
and the rules that may report it, unclear, or empty if nothing was logged over time. Logs that are not in fixtures/real are at
FOLDER/ID/NAME, as their repositories have them at that commit; without a folder only the kept ones are judged. Held-out logs are
judged with `--held-out` only, and appear only in sums. `--write` puts the tables into docs/real-runs.md.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from ckaudit.audit import triage  # noqa: E402
from ckaudit.contract.schema.import_options import ImportOptions  # noqa: E402
from ckaudit.contract.schema.report import Report  # noqa: E402
from ckaudit.errors import CkauditError  # noqa: E402
from ckaudit.importers import import_runs  # noqa: E402
from ckaudit.run.robust import wilson_interval  # noqa: E402

INDEX = Path(__file__).with_suffix(".json")
KEPT = ROOT / "fixtures"
PAGE = ROOT / "docs" / "real-runs.md"
MARK = "<!-- written by benchmarks/real_runs.py -->"
GRAVE = ("sev0", "sev1")
MAX_RUNS = 40  # most runs that are judged in one file


class Source(Struct, kw_only=True):
    """Where a public log comes from, and what it shows.

    Attributes:
        id: Its name here; those that begin with `fixtures/` are kept in fixtures/real.
        sha256: Of the file; None: it is a folder.
        truth: "healthy", "incident", "unclear" or "empty".
        what: What the log shows, as read before the audit.
    """

    id: str
    repository: str
    commit: str
    path: str
    licence: str
    format: str
    sha256: str | None
    truth: str
    what: str


class Log(Source, kw_only=True):
    """One entry of the index.

    Attributes:
        file: Its path in the folder of logs; None: it is kept in fixtures/real.
        points: Points of its longest series.
        chosen: "drawn" at random within its repository, "searched" for an incident or a known look, or "kept" from before.
        first: First step of the incident, in the audit's steps; None: from the beginning.
        last: Its last step; None: to the end.
        findings: Rules that may report the incident.
        true_besides: Rules whose finding is right although the truth had overlooked it, with what was overlooked.
        causes: First causes that were examined, and whether the log can support them.
    """

    field: str
    points: int
    file: str | None
    chosen: str
    held_out: bool
    first: int | None = None
    last: int | None = None
    findings: list[str] = []
    true_besides: dict[str, str] = {}
    causes: dict[str, bool] = {}


class Verdict(Struct, kw_only=True):
    """The audit's verdict on one log; of several runs in it, the worst one.

    Attributes:
        error: Why it cannot be judged; empty if it was.
        runs: How many runs it contains.
        findings: Name, severity, first and last step of each finding.
        cause: The first cause; empty if there is none.
    """

    error: str = ""
    runs: int = 0
    findings: list[tuple[str, str, int | None, int | None]] = []
    cause: str = ""


def index() -> list[Log]:
    """Return every log."""
    return convert(json.loads(INDEX.read_text(encoding="utf-8")), list[Log])


def path_of(log: Log, folder: Path | None) -> Path | None:
    """Return the path of a log, or None if it is not available."""
    if log.file is None:
        return KEPT / "real" / log.id.removeprefix("fixtures/")
    path = None if folder is None else folder / log.file
    return path if path is not None and path.exists() else None


def judged(path: Path) -> Verdict:
    """Audit a log, or each of its runs if there are several, and return the verdict on the worst."""
    try:
        names = [str(number) for number in range(1, len(import_runs(path)) + 1)][:MAX_RUNS]
        return verdict_of([triage(path, import_options=ImportOptions(run=name)) for name in names])
    except CkauditError as error:
        return Verdict(error=str(error))


def verdict_of(reports: Sequence[Report]) -> Verdict:
    """Return the verdict from reports on the runs of one log: all findings, and the first cause of the worst."""
    gravest = min(reports, key=lambda report: report.severity or "z")  # sev0 before sev1 before sev2; note before none
    cause = next((each for report in (gravest, *reports) for each in report.diagnoses), None)
    findings = [(each.name, each.severity, each.first_step, each.last_step) for report in reports for each in report.findings]
    return Verdict(runs=len(reports), findings=findings, cause=cause.cause if cause and counts(gravest.severity) else "")


def counts(severity: str | None) -> bool:
    """Tell whether a severity is more than a note."""
    return severity is not None and severity.startswith("sev")


def wrong(log: Log, verdict: Verdict, *, amended: bool) -> str:
    """Return the worst severity of a healthy log, without what is true besides if `amended`; empty if it has none."""
    severities = [severity for name, severity, _, _ in verdict.findings if counts(severity)]
    if amended:
        severities = [severity for name, severity, _, _ in verdict.findings if counts(severity) and name not in log.true_besides]
    return min(severities, default="")


def is_found(log: Log, verdict: Verdict) -> bool:
    """Tell whether a finding of a rule that may report the incident overlaps it."""
    first, last = log.first or 0, float("inf") if log.last is None else log.last
    return any(
        counts(severity) and name in log.findings and (start or 0) <= last and (end if end is not None else float("inf")) >= first
        for name, severity, start, end in verdict.findings
    )


Results = Mapping[str, Verdict]


def share(hits: int, of: int) -> str:
    """Return a share in percent with its 95 % interval (Wilson).

    >>> share(0, 50)
    '0 of 50, 0.0 % (0.0 to 7.1)'
    """
    if not of:
        return "none"
    low, high = wilson_interval(hits, of)
    return f"{hits} of {of}, {100 * hits / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def sums(logs: Sequence[Log], results: Results) -> Iterator[str]:
    """Yield the rows of the table of sums for some logs."""
    read = [log for log in logs if not results[log.id].error]
    healthy = [log for log in read if log.truth == "healthy"]
    ill = [log for log in read if log.truth == "incident"]
    causes = [log for log in read if results[log.id].cause in log.causes]
    yield f"| read | {share(len(read), len(logs))} |"
    for amended, said in ((False, ""), (True, ", but for findings that are true besides")):
        flags = Counter(wrong(log, results[log.id], amended=amended) for log in healthy)
        yield f"| healthy, flagged sev0 or sev1{said} | {share(flags['sev0'] + flags['sev1'], len(healthy))} |"
        yield f"| healthy, flagged sev2{said} | {share(flags['sev2'], len(healthy))} |"
    yield f"| incidents found in their place | {share(sum(is_found(log, results[log.id]) for log in ill), len(ill))} |"
    unsupported = sum(not log.causes[results[log.id].cause] for log in causes)
    yield f"| first causes that the log cannot support | {share(unsupported, len(causes))} |"


def groups(logs: Sequence[Log], results: Results, key: Callable[[Log], str]) -> Iterator[str]:
    """Yield a row for each format or field: logs, those read, healthy ones flagged, incidents found."""
    parts: dict[str, list[Log]] = defaultdict(list)
    for log in logs:
        parts[key(log)].append(log)
    for name, members in sorted(parts.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        read = [log for log in members if not results[log.id].error]
        healthy = [log for log in read if log.truth == "healthy"]
        flags = Counter(wrong(log, results[log.id], amended=True) for log in healthy)
        ill = [log for log in read if log.truth == "incident"]
        found = sum(is_found(log, results[log.id]) for log in ill)
        grave = flags["sev0"] + flags["sev1"]
        yield f"| {name} | {len(members)} | {len(read)} | {len(healthy)} | {grave} | {flags['sev2']} | {found} of {len(ill)} |"


def rows(logs: Iterable[Log], results: Results) -> Iterator[str]:
    """Yield a row for each log that is not held out."""
    for log in logs:
        verdict = results[log.id]
        said = Counter((severity, name) for name, severity, _, _ in verdict.findings if counts(severity))
        words = [f"{severity} {name}" + (f" x{count}" if count > 1 else "") for (severity, name), count in sorted(said.items())]
        outcome = "not read" if verdict.error else ", ".join(words) or "nothing"
        outcome += f"; {verdict.cause}" if verdict.cause else ""
        besides = "".join(f" **Overlooked:** {text}." for text in log.true_besides.values())
        yield (
            f"| `{log.id}` | {log.repository}@{log.commit[:8]} | {log.licence} | {log.format} | {log.field} | {log.points:,} "
            f"| {log.truth}: {log.what}.{besides} | {outcome} |"
        )


def page(logs: Sequence[Log], results: Results) -> str:
    """Return the tables of the document."""
    open_logs = [log for log in logs if not log.held_out and log.id in results]
    held = [log for log in logs if log.held_out and log.id in results]
    lines = [f"{len(open_logs)} logs that were looked at while readers and rules were mended:", "", "| | |", "|---|---|"]
    lines += sums(open_logs, results)
    if held:
        lines += ["", f"{len(held)} held-out logs, audited once, at the end:", "", "| | |", "|---|---|", *sums(held, results)]
    head = ["| logs | read | healthy | sev0, sev1 | sev2 | incidents found |", "|---|---|---|---|---|---|"]
    both = [*open_logs, *held]
    for title, key in (("format", lambda log: log.format), ("field", lambda log: log.field)):
        lines += ["", f"| {title} {head[0]}", f"|---{head[1]}", *groups(both, results, key)]
    lines += [
        "",
        "| log | from | licence | format | field | points | truth, read before the audit | the audit |",
        "|---" * 8 + "|",
    ]
    lines += rows(open_logs, results)
    lines += [
        "",
        "Held out, by address alone:",
        "",
        "| log | from | path | licence | format | field | points |",
        "|---" * 7 + "|",
    ]
    lines += [
        f"| `{log.id}` | {log.repository}@{log.commit[:8]} | {log.path} | {log.licence} | {log.format} | {log.field} "
        f"| {log.points:,} |"
        for log in logs
        if log.held_out
    ]
    return "\n".join(lines)


def checked(log: Source, path: Path) -> None:
    """Stop if a file is not the one of the index.

    Raises:
        SystemExit: If its checksum differs.
    """
    if log.sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != log.sha256:
        raise SystemExit(f"{path} is not the file of {log.repository} at {log.commit[:8]}: its checksum differs")


def main(words: Sequence[str] | None = None) -> None:
    """Judge the available logs, print the sums, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, help="folder of the logs that are not kept here")
    parser.add_argument("--held-out", action="store_true", help="judge the held-out logs too")
    parser.add_argument("--save", type=Path, help="file of verdicts; logs that it holds are not judged again")
    parser.add_argument("--write", action="store_true", help=f"write the tables to {PAGE.relative_to(ROOT)}")
    args = parser.parse_args(words)
    logs = index()
    saved: dict[str, Any] = json.loads(args.save.read_text(encoding="utf-8")) if args.save and args.save.exists() else {}
    results = convert(saved, dict[str, Verdict])
    for log in logs:
        path = path_of(log, args.logs)
        if log.id in results or path is None or (log.held_out and not args.held_out):
            continue
        checked(log, path)
        results[log.id] = judged(path)
    if args.save:
        args.save.write_text(json.dumps(to_builtins(results), indent=1) + "\n", encoding="utf-8")
    text = page(logs, results)
    print(text.partition("| format |")[0])
    if args.write:
        before = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
        PAGE.write_text(f"{before}{MARK}\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
