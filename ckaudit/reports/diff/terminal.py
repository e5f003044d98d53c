"""A comparison on a screen: first the verdict, then what it rests on; more than two subjects share one table."""

from ckaudit.contract.schema.diff import Comparison, Pair
from ckaudit.reports import words
from ckaudit.reports.diff.paired import COLOURS, sections, told
from ckaudit.reports.diff.sentences import WORDS, badge, headline, how, labels, verdict
from ckaudit.reports.diff.table import many
from ckaudit.reports.terminal.text import fit, paint, paragraph, shown
from ckaudit.reports.view import PLAIN, View

UNSEEN = 100  # columns where no screen says how many
NARROWEST, WIDEST = 40, 120
GATE_COLOURS = {"passed": "ok", "failed": "sev1", "incomparable": "sev2"}


def render(comparison: Comparison, view: View = PLAIN) -> str:
    """Return the whole, a section each; `verbose` leaves nothing out."""
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    parts = [_head(comparison, view, width), _gate(comparison, view, width)]
    if len(comparison.pairs) == 1:
        parts += sections(comparison.pairs[0], view, width)
    else:
        parts.append(many(comparison, view, width))
        for index, pair in enumerate(comparison.pairs):
            parts += _one_of_many(comparison, pair, index, view, width)
    parts.append(told("Notes", comparison.notes, view, width))
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(comparison: Comparison, view: View, width: int) -> list[str]:
    """Return the badge with the verdict, then who is who, dimmed."""
    word = badge(comparison)
    colour = GATE_COLOURS[comparison.gate.outcome] if comparison.gate else COLOURS[comparison.word]
    first, *rest = fit(shown(headline(comparison, *labels(comparison)[:2]), view), width - len(word) - 2)
    lines = [f"{paint(word, colour, view)}  {paint(first, 'bold', view)}"]
    lines += [" " * (len(word) + 2) + paint(line, "bold", view) for line in rest]
    about = how(comparison, words.plural(comparison.files, "file"))
    named = [
        line
        for label, name in zip(labels(comparison), comparison.subjects, strict=True)
        for line in paragraph(shown(name, view), width, first=f"{label} ")
    ]
    return [*lines, *(paint(line, "dim", view) for line in (*named, *paragraph(shown(about, view), width)))]


def _gate(comparison: Comparison, view: View, width: int) -> list[str]:
    """Return why the gate did not open, and by which terms it judged."""
    if comparison.gate is None:
        return []
    gate = comparison.gate
    lines = [line for reason in gate.reasons for line in paragraph(shown(reason, view), width, first="- ")]
    terms = f"counts: {', '.join(gate.counts)}"
    if gate.allowed:
        terms += "; may be worse: " + ", ".join(f"{name} by {words.number(100 * part)} %" for name, part in gate.allowed.items())
    if gate.expected:
        terms += f"; expected: {', '.join(gate.expected)}"
    terms += f"; policy {gate.policy}" if gate.policy else "; no policy"
    title = [paint("Why", "bold", view), *lines] if lines else []
    return [*title, *(paint(line, "dim", view) for line in paragraph(shown(terms, view), width))]


def _one_of_many(comparison: Comparison, pair: Pair, index: int, view: View, width: int) -> list[list[str]]:
    """Return the sections of one pair among several: all of them where everything is asked for, else its verdict."""
    left, right = (0, index + 1) if comparison.gate is None else (index, len(comparison.subjects) - 1)
    names = labels(comparison)
    head = f"{names[right]} against {names[left]}: {WORDS[pair.word]}: "
    lines = paragraph(shown(verdict(pair), view), width, first=head, indent="")
    lines[0] = lines[0].replace(head, paint(head, "bold", view), 1)
    return [lines, *sections(pair, view, width)] if view.verbose else [lines]
