"""What the lab can train: as JSON, as tables on a screen, or as tables of Markdown."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from ckaudit.lab.specs import Control, Experiment, Fault, FaultStrength
from ckaudit.lab.training_spec import Healthy, LabCatalogue
from ckaudit.reports.json import dumps
from ckaudit.reports.lab import markdown
from ckaudit.reports.lab.terminal import room, widths, wrapped
from ckaudit.reports.terminal.screen_text import paint, paragraph
from ckaudit.reports.view import View

NOTE = "Numbers are those of the dev split; the test split has others. Truth is the cause that an audit is to name."
# Minimum widths of columns while others can shrink; names of faults are never broken.
TRUTH_COLUMNS, TEXT_COLUMNS, NAME_COLUMNS = 14, 30, 24
INDENT = "  "


class CatalogueSection(Struct, frozen=True):
    """A heading with rows; the first row names the columns."""

    title: str
    rows: list[tuple[str, ...]]


def render(catalogue: LabCatalogue, format: str, view: View) -> str:  # noqa: A002  what the option is called
    """Return the catalogue as "terminal", "json" or "markdown"."""
    if format == "json":
        return as_json(catalogue)
    return on_paper(catalogue) if format == "markdown" else on_screen(catalogue, view)


def as_json(catalogue: LabCatalogue) -> str:
    """Return everything known about each item, except the code."""
    arms = {
        experiment.name: {arm: type(change).__name__ for arm, change in experiment.arms.items()}
        for experiment in catalogue.experiments
    }
    return dumps(
        {
            "faults": [_facts(fault) for fault in catalogue.faults],
            "healthy": [_facts(healthy) for healthy in catalogue.healthy],
            "controls": [_facts(control) for control in catalogue.controls],
            "experiments": [_facts(experiment) | {"arms": arms[experiment.name]} for experiment in catalogue.experiments],
        }
    )


def on_screen(catalogue: LabCatalogue, view: View) -> str:
    """Return a table for each group of faults, and for healthy trainings, controls and experiments."""
    width, parts = room(view), list(sections(catalogue))
    wide = {}
    for head in {part.rows[0] for part in parts}:  # tables of the same kind have the same columns
        rows = [row for part in parts if part.rows[0] == head for row in part.rows]
        min_widths = {1: TRUTH_COLUMNS, 2: TEXT_COLUMNS} if len(head) == 3 else {0: NAME_COLUMNS, 1: TEXT_COLUMNS}
        wide[head] = widths(rows, width - len(INDENT), min_widths)
    blocks = ["\n".join(paragraph(NOTE, width, indent=""))] if catalogue.faults else []
    for part in parts:
        head, *rows = part.rows
        lines = [INDENT + paint(line, "dim", view) for line in wrapped(head, wide[head], view)]
        lines += [INDENT + line for row in rows for line in wrapped(row, wide[head], view)]
        blocks.append("\n".join([paint(part.title, "bold", view), *lines]))
    return "\n\n".join(blocks) + "\n"


def on_paper(catalogue: LabCatalogue) -> str:
    """Return the same tables as Markdown."""
    parts = [f"## {part.title}\n\n{markdown.table(part.rows)}" for part in sections(catalogue)]
    return "\n\n".join(([NOTE] if catalogue.faults else []) + parts) + "\n"


def sections(catalogue: LabCatalogue) -> Iterator[CatalogueSection]:
    """Yield the tables: faults by group with their truth, then healthy trainings, controls and experiments."""
    for group in sorted({fault.group for fault in catalogue.faults}):
        rows = [
            (fault.name, fault.truth, in_numbers(fault.title, fault.dev)) for fault in catalogue.faults if fault.group == group
        ]
        yield CatalogueSection(f"{group} ({_count(rows, 'fault')})", [("name", "truth", "what is done"), *rows])
    if catalogue.healthy:
        plain = [(healthy.name, healthy.title) for healthy in catalogue.healthy]
        yield CatalogueSection(f"healthy ({_count(plain, 'training')})", [("name", "what it is"), *plain])
    if catalogue.controls:
        ill = [(control.name, control.title) for control in catalogue.controls]
        yield CatalogueSection(f"healthy, but looks ill ({_count(ill, 'control')})", [("name", "what it is"), *ill])
    if catalogue.experiments:
        steps = [(experiment.id, experiment.name, experiment.title) for experiment in catalogue.experiments]
        yield CatalogueSection(f"curriculum ({_count(steps, 'experiment')})", [("id", "name", "what is compared"), *steps])


def in_numbers(text: str, amount: FaultStrength) -> str:
    """Return a title or description with its strength and onset as numbers.

    >>> in_numbers("From the onset on the rate is `strength` times the healthy one.", FaultStrength(onset=150, strength=1e-5))
    'From step 150 on the rate is 0.00001 times the healthy one.'
    """
    start = f"step {amount.onset}" if amount.onset else "the start"
    text = re.sub(r"\bthe onset\b", start, text).replace("`onset`", str(amount.onset))
    return text.replace("`strength`", f"{Decimal(f'{amount.strength:g}'):,f}")


def _count(rows: list[Any], what: str) -> str:
    return f"{len(rows)} {what}{'s' * (len(rows) != 1)}"


def _facts(thing: Fault | Control | Experiment | Healthy) -> dict[str, Any]:
    values = {name: getattr(thing, name) for name in thing.__struct_fields__ if name not in ("change", "arms")}
    return {name: msgspec.to_builtins(value) if isinstance(value, FaultStrength) else value for name, value in values.items()}
