"""Verdicts on four sets of public logs, each chosen by a person who had not read the rules; any finding above a note counts.

    python benchmarks/public_logs.py --logs FOLDER [--set NAME] [--write]

`public_logs.json` names each log: set, repository, commit, path, licence, checksum, and its truth, read beforehand: healthy, an
incident, or unclear. FOLDER holds each as SET/ID/NAME, as its repository has it at that commit. The truth of these sets is less
detailed than in `real_runs.py`, where it says which rules may report an incident, and at which steps. `--write` puts the table
into docs/real-runs.md.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import convert
from rich.progress import track

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from real_runs import PAGE, Source, Verdict, checked, counts, judged, share  # noqa: E402

HEAD = ["| set | read | healthy, with a finding of sev2 or worse | incidents, found |", "|---|---|---|---|"]
INDEX = Path(__file__).with_suffix(".json")
BEGIN, END = "<!-- written by benchmarks/public_logs.py -->", "<!-- end of benchmarks/public_logs.py -->"


class PublicLog(Source, kw_only=True):
    """One entry of the index.

    Attributes:
        set: The collection that it belongs to.
    """

    set: str


def path_of(log: PublicLog, folder: Path) -> Path:
    """Return the path of a log.

    Raises:
        SystemExit: If it is missing, or its checksum differs.
    """
    path = folder / log.set / log.id / Path(log.path).name
    if not path.is_file():
        raise SystemExit(f"{path} is missing: {log.path} of {log.repository} at {log.commit[:8]}")
    checked(log, path)
    return path


def is_flagged(verdict: Verdict) -> bool:
    """Tell whether there is any finding above a note."""
    return any(counts(severity) for _, severity, _, _ in verdict.findings)


def rows(logs: Sequence[PublicLog], verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield a row for each set."""
    for name in dict.fromkeys(log.set for log in logs):
        members = [log for log in logs if log.set == name]
        read = [log for log in members if not verdicts[log.id].error]
        flagged = ([is_flagged(verdicts[log.id]) for log in read if log.truth == truth] for truth in ("healthy", "incident"))
        sums = (share(sum(each), len(each)) for each in flagged)
        yield f"| {name} | {share(len(read), len(members))} | {' | '.join(sums)} |"


def name_of_set(row: str) -> str:
    """Return the first cell of a row of the table."""
    return row.split("|")[1].strip()


def main(words: Sequence[str] | None = None) -> None:
    """Judge all logs, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, required=True, help="folder of the logs")
    parser.add_argument("--set", help="judge this set alone")
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.relative_to(ROOT)}")
    args = parser.parse_args(words)
    logs = [log for log in convert(json.loads(INDEX.read_text(encoding="utf-8")), list[PublicLog]) if args.set in (None, log.set)]
    verdicts = {log.id: judged(path_of(log, args.logs)) for log in track(logs, "judging")}
    judged_rows = [*rows(logs, verdicts)]
    print("\n".join([*HEAD, *judged_rows]))
    if args.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        old, _, after = rest.partition(END)
        names = {name_of_set(row) for row in judged_rows}
        kept = [row for row in old.splitlines() if row.startswith("|") and row not in HEAD and name_of_set(row) not in names]
        lines = [BEGIN, "", *HEAD, *kept, *judged_rows, "", END]
        PAGE.write_text(before + "\n".join(lines) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
