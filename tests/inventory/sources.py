"""Where a row's evidence comes from: recorded runs, lab recordings, public logs, and small cases, each judged once.

run/healthy         a recording in fixtures/runs
lab/zero_proj.0     a recording of the lab in fixtures/lab
real/olmo/a.csv     a public log in fixtures/real
rules/overflow: x   the case x of tests/rules/overflow.toml; causes/ and questions/ alike
own: x              the case x of own.toml
"""

import tomllib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ckaudit.audit import triage, triage_run
from ckaudit.contract.schema.report import Report
from ckaudit.lab import archive
from tests.cases import run_of

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
PHASES = range(1, 8)


def ids() -> dict[str, str]:
    """Return every row that has to be answered, and what it is about."""
    lines = (HERE / "rows.txt").read_text(encoding="utf-8").splitlines()
    return {row: about for row, _, about in (line.partition(" ") for line in lines)}


def table(name: str) -> dict[str, Any]:
    """Return one of the tables beside this file."""
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def report(source: str, question: str = "") -> Report:
    """Return what triage says of a source, with all questions answered.

    Args:
        source: As above.
        question: The row that a case of tests/questions is of: names are its own.
    """
    kind, _, rest = source.partition("/")
    if ": " in source:
        return triage_run(run_of(_case(source, question)), questions=PHASES)
    if kind == "lab":
        with TemporaryDirectory() as folder:
            archive.unpack(FIXTURES / "lab" / f"{rest}.tar.zst", Path(folder))
            return triage(Path(folder), questions=PHASES)
    return triage(FIXTURES / {"run": "runs", "real": "real"}[kind] / rest, questions=PHASES)


@cache
def _cases(path: Path) -> list[dict[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["case"]


def _case(source: str, question: str) -> dict[str, Any]:
    """Return the small case that a source names."""
    place, _, name = source.partition(": ")
    path = HERE / "own.toml" if place == "own" else HERE.parent / f"{place}.toml"
    named = [case for case in _cases(path) if case["name"] == name]
    (case,) = [case for case in named if case.get("id", question) == question or not question]
    return case
