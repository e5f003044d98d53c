"""Write `ckaudit/explain/shown.toml`, the runs that show each rule and cause: `python docs/shown.py CACHE`, of the lab."""  # noqa: INP001

import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ckaudit.audit import triage
from ckaudit.causes import causes
from ckaudit.contract.schema.report import Report
from ckaudit.explain.catalogue_pages import SHOWN
from ckaudit.importers import ImportOptions, import_runs
from ckaudit.lab import archive
from ckaudit.lab.specs import Fault, faults
from ckaudit.rules import rules

ROOT = Path(__file__).parents[1]
HEAD = """# Where an audit really found what a rule or a cause is about: written by docs/shown.py from the recordings of the lab
# under seed 0, from fixtures/ and from the cases in tests/. Not to be edited: a test holds what is shipped to it.
"""
FIELDS = ("lab", "noted", "missed", "runs", "logs", "case")
Table = dict[str, dict[str, Any]]


def of_fault(fault: Fault, report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield ("rules" or "causes", name, field) for what a fault's label names and for what the audit found."""
    severities = defaultdict(set)
    for finding in report.findings:
        if finding.last_step is None or finding.last_step >= fault.dev.onset:
            severities[finding.name].add(finding.severity)
    for name in dict.fromkeys(fault.symptoms):
        if name in severities:
            yield "rules", name, "noted" if severities[name] == {"note"} else "lab"
        else:
            yield "rules", name, "missed"
    for name in dict.fromkeys(fault.consequences):
        if severities[name] - {"note"}:
            yield "rules", name, "follows"
    first = report.diagnoses[0].cause if report.diagnoses else ""
    yield "causes", fault.truth, "lab" if first == fault.truth else "missed"


def of_recording(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the rules that an audit found above a note, and the cause that came first."""
    for name in dict.fromkeys(finding.name for finding in report.findings if finding.severity != "note"):
        yield "rules", name
    yield from (("causes", diagnosis.cause) for diagnosis in report.diagnoses[:1])


def recordings() -> Iterator[tuple[str, str, Report]]:
    """Yield every recorded run and real log of the repository: "runs" or "logs", its path and the audit.

    A log of a run that also exists in another format shows nothing new, and is skipped.
    """
    for folder in sorted((ROOT / "fixtures" / "runs").glob("*/run.json")):
        yield "runs", folder.parent.relative_to(ROOT).as_posix(), triage(folder.parent)
    for entry in json.loads((ROOT / "fixtures" / "real" / "INDEX.json").read_text(encoding="utf-8")):
        path = ROOT / "fixtures" / "real" / entry["path"]
        for number, _ in enumerate(() if "same_run_as" in entry else import_runs(path), 1):
            yield "logs", path.relative_to(ROOT).as_posix(), triage(path, import_options=ImportOptions(run=str(number)))


def case_of(kind: str, name: str) -> str:
    """Return the name of the first case in which a rule finds something, or a cause comes first; empty if there is none."""
    path = ROOT / "tests" / kind / f"{name}.toml"
    cases = tomllib.loads(path.read_text(encoding="utf-8"))["case"] if path.exists() else []
    shows = [
        case
        for case in cases
        if case.get("expect") and (kind == "rules" or name in [expected.get("first") for expected in case["expect"]])
    ]
    return next((str(show["name"]) for show in shows), "")


def collected(cache: Path) -> dict[str, Table]:
    """Return the whole table, by "rules" and "causes", from a cache of the lab and from the repository."""
    found: dict[str, Table] = {
        "rules": {rule.name: defaultdict(list) for rule in rules().values()},
        "causes": {name: defaultdict(list) for name in causes()},
    }
    for fault in faults().values():
        with TemporaryDirectory() as folder:
            archive.unpack(cache / f"{fault.name}.0.tar.zst", Path(folder))
            for kind, name, field in of_fault(fault, triage(Path(folder))):
                if name in found[kind]:
                    found[kind][name][field].append(fault.name)
    for field, path, report in recordings():
        for kind, name in of_recording(report):
            if name in found[kind]:
                found[kind][name][field].append(path)
    for kind, table in found.items():
        for name, row in table.items():
            row["case"] = case_of(kind, name)
            _settle(row)
    return found


def _settle(row: dict[str, Any]) -> None:
    """Keep the best evidence of the lab: symptoms, else what follows from another fault, else notes, else nothing."""
    row["lab"] = row["lab"] or row["follows"]
    if row["lab"]:
        row["noted"] = []
    if row["lab"] or row["noted"]:
        row["missed"] = []


def text(found: dict[str, Table]) -> str:
    """Return the table as TOML."""
    blocks = [HEAD]
    for kind, table in found.items():
        for name in sorted(table):
            rows = [f"{field} = {json.dumps(table[name][field], ensure_ascii=False)}" for field in FIELDS if table[name][field]]
            blocks.append("\n".join([f"[{kind}.{name}]", *rows]) + "\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    SHOWN.write_text(text(collected(Path(sys.argv[1]))), encoding="utf-8")
