"""What the lab can train: as JSON, or as a list on a screen."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ckaudit.lab.story import Amount, Control, Experiment, Fault
from ckaudit.reports.json import dumps
from ckaudit.reports.terminal.look import paint, shown
from ckaudit.reports.terminal.paragraph import paragraph
from ckaudit.reports.view import View

FORMATS = ("terminal", "json")
WIDEST = 110


def as_json(faults: Mapping[str, Fault], controls: Mapping[str, Control], experiments: Mapping[str, Experiment]) -> str:
    """Return everything that is said of each, but for the code."""
    arms = {each.name: {arm: type(change).__name__ for arm, change in each.arms.items()} for each in experiments.values()}
    return dumps(
        {
            "faults": [_facts(each) for each in faults.values()],
            "controls": [_facts(each) for each in controls.values()],
            "experiments": [_facts(each) | {"arms": arms[each.name]} for each in experiments.values()],
        }
    )


def on_screen(
    faults: Mapping[str, Fault], controls: Mapping[str, Control], experiments: Mapping[str, Experiment], view: View
) -> str:
    """Return names and titles: faults by group with their truth, then controls, then experiments."""
    width = min(WIDEST, view.width or WIDEST)
    parts = []
    for group in sorted({each.group for each in faults.values()}):
        members = [each for each in faults.values() if each.group == group]
        parts.append([paint(f"{group} ({len(members)} faults)", "bold", view), *_lines(members, view, width)])
    if controls:
        parts.append([paint(f"healthy, but looks ill ({len(controls)})", "bold", view), *_lines(controls.values(), view, width)])
    if experiments:
        parts.append([paint(f"experiments ({len(experiments)})", "bold", view), *_lines(experiments.values(), view, width)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _lines(members: Any, view: View, width: int) -> Iterator[str]:
    for each in members:
        truth = f" Truth: {each.truth}." if isinstance(each, Fault) and each.truth != each.name else ""
        yield from paragraph(shown(each.title + truth, view), width, first=f"  {each.name}: ", indent="      ")


def _facts(thing: Fault | Control | Experiment) -> dict[str, Any]:
    values = {name: getattr(thing, name) for name in thing.__struct_fields__ if name not in ("change", "arms")}
    return {name: msgspec.to_builtins(value) if isinstance(value, Amount) else value for name, value in values.items()}
