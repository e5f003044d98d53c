"""Write the schemas, and into README.md the table of fields and what reads each: `python schemas/make.py`."""  # noqa: INP001

import re
from collections import defaultdict
from pathlib import Path

from ckaudit.contract.checks import checks
from ckaudit.contract.checks.names import fields
from ckaudit.contract.schema.published import publish
from ckaudit.metrics import metrics
from ckaudit.reports.schemas import publish_outputs
from ckaudit.rules.rule import rules
from ckaudit.run.column_builder import GROUPS

HERE = Path(__file__).parent
START, END = "<!-- fields: written by schemas/make.py -->", "<!-- end of fields -->"
DECODER = {"schema_version": ("SCH001", "SCH002")}


def readers() -> dict[str, dict[str, list[str]]]:
    """Return by path which checks (by the code of what they find), metrics and rules read it."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, codes in DECODER.items():
        found[path]["checks"] += codes
    for check in checks():
        for path in check.reads:
            found[path]["checks"] += [kind.code for kind in check.kinds]
    for metric in metrics().values():
        for path in metric.reads:
            found[field_of(path)]["metrics"].append(metric.name)
    for rule in rules().values():
        for path in {path for metric in rule.metrics for path in metric.reads}:
            found[field_of(path)]["rules"].append(rule.code)
    return found


def field_of(path: str) -> str:
    """Return the field that a metric's path means: a run holds the facts of many ranks, a file those of one.

    What the black box has of each tensor is a field of it, and of groups of the optimizer their rates are read.
    """
    path = path.replace("rank_facts.*.", "rank_facts.").replace(GROUPS, f"{GROUPS}[].learning_rate")
    return path.removesuffix(".*") if path.startswith("history.") else path


def table() -> str:
    """Return the table of all fields of ck.analysis.v1 in Markdown."""
    found = readers()
    lines = ["| field | meaning | checks | metrics | rules |", "|---|---|---|---|---|"]
    for path, meaning in fields().items():
        cells = [", ".join(sorted(set(found[path][kind]))) for kind in ("checks", "metrics", "rules")]
        lines.append(" | ".join([f"| `{path}`", meaning, *cells]) + " |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """Return a README with the table between its markers."""
    return re.sub(f"{re.escape(START)}.*?{re.escape(END)}", lambda _: f"{START}\n{table()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    publish(HERE)
    publish_outputs(HERE)
    readme = HERE / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
