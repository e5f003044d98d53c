"""Why a benchmark fell, as Markdown: a table of the gates, the evidence of each, and the guide where it is reached."""

from collections.abc import Iterator

from ckaudit.audit.drop.guide import ONE_AXIS
from ckaudit.audit.drop.result import Advice, Drop, Gate
from ckaudit.reports.drop.sentences import fell, guide_of, missing, outcome, told
from ckaudit.reports.escape import code, escaped, visible
from ckaudit.reports.view import View


def render(drop: Drop, view: View) -> str:
    """Return the whole as GitHub-flavoured Markdown."""
    blocks = [f"### ckaudit triage --benchmark-drop: {escaped(drop.verdict)}"]
    blocks += [escaped(fell(drop.fall))] if drop.fall else []
    if drop.gates:
        rows = [f"| {gate.row} | {escaped(gate.question)} | {outcome(gate)} | {escaped(gate.sentence)} |" for gate in drop.gates]
        blocks.append("\n".join(["| gate | question | outcome | answer |", "|---|---|---|---|", *rows]))
    for gate in drop.gates:
        blocks += _gate(gate, drop, view)
    if rows_of := guide_of(drop, verbose=view.verbose):
        blocks += ["#### Guide to architecture", ONE_AXIS, *(_advice(row) for row in rows_of)]
    blocks += [f"- {escaped(note)}" for note in drop.notes]
    blocks.append(f"<sub>{escaped(drop.subject)}: {drop.files} files read</sub>")
    return "\n\n".join(blocks) + "\n"


def _gate(gate: Gate, drop: Drop, view: View) -> Iterator[str]:
    """Yield the evidence of a gate, what to record for it, and what to do."""
    evidence = told(gate, drop, verbose=view.verbose)
    lacking = missing(gate)
    if not (evidence or lacking):
        return
    yield f"#### {gate.row} {outcome(gate)}"
    if evidence:
        rows = [f"| {each.said.replace('_', ' ')} | {code(each.metric)} | {escaped(each.sentence)} |" for each in evidence]
        yield "\n".join(["| | number | what it says |", "|---|---|---|", *rows])
    for record, names in lacking.items():
        yield f"Record {', '.join(map(code, names))}:"
        yield "\n".join(["```text", *(visible(line) for each in record for line in each.splitlines()), "```"])
    if gate.row == drop.answer:
        yield "\n".join(f"{place}. {escaped(step)}" for place, step in enumerate(gate.do, start=1))


def _advice(row: Advice) -> str:
    """Return a row of the guide as a list."""
    items = [f"when: {row.when}", row.text, f"test: {row.test}", *(f"known: {fact}" for fact in row.facts)]
    items += [f"here: {'; '.join(row.here)}"] if row.here else []
    items += [f"not for this run: {row.not_applicable}"] if row.not_applicable else []
    return "\n".join([f"**{row.row} {escaped(row.title)}**", "", *(f"- {escaped(item)}" for item in items)])
