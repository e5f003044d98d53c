"""Pages of explain in under 400 tokens: what a name means, what is checked, its limits, and related names."""

from collections.abc import Sequence

from ckaudit.explain.page import NameGroup, Page
from ckaudit.reports.brief.text_budget import MAX_CHARACTERS, clipped, fitted
from ckaudit.reports.view import View
from ckaudit.wording import first_names

MAX_PAGES = 4  # with more pages, there would be too little space for each
LEFT_OUT = ("Runs that show it", "cited", "looks back", "by scale", "by stage")


def render(pages: Sequence[Page], view: View) -> str:  # noqa: ARG001  its length is fixed
    """Return the key facts for each name; the last line says where to find the rest."""
    return brief(pages, more="more: the same ckaudit explain without --format")


def brief(pages: Sequence[Page], *, more: str) -> str:
    """Return the same summary with another last line; several pages share the space."""
    shown = pages[:MAX_PAGES]
    if rest := [page.name for page in pages[MAX_PAGES:]]:
        more = f"and {first_names(rest, 3)}: name fewer at once\n{more}"
    room = (MAX_CHARACTERS - len(more) - 1) // max(1, len(shown))
    heads = [clipped(f"{page.kind} {' '.join([page.name, *page.ids])}: {page.title}", 260) for page in shown]
    texts = [fitted([head], _rest(page), [], limit=room) for head, page in zip(heads, shown, strict=True)]
    return "".join(texts) + more + "\n"


def groups(listed: Sequence[NameGroup], view: View) -> str:  # noqa: ARG001  its length is fixed
    """Return how many names of each kind there are, and the first of them."""
    lines = {
        group.title: clipped(f"{group.title} {len(group.lines):,}: {first_names([line.name for line in group.lines], 2)}", 90)
        for group in listed
    }
    return fitted([], lines, ["more: ckaudit explain lists all names, ckaudit explain NAME tells one"])


def _rest(page: Page) -> dict[str, str]:
    """Return a line for each part of a page, by its title, the most useful part first."""
    lines = {f"formula {formula.row}".strip(): f"formula: {formula.tex}" for formula in page.formulas[:1]}
    lines |= {section.title: " ".join([f"{section.title}:", *section.paragraphs]) for section in page.sections}
    if page.thresholds:
        lines["limits"] = "limits: " + first_names([f"{threshold.name} {threshold.default}" for threshold in page.thresholds], 8)
    lines |= {label: f"{label}: {first_names(names, 6)}" for label, names in page.links.items()}
    lines |= {label: f"{label}: {text}" for label, text in page.table().items()}
    return {label: clipped(" ".join(text.split()), 300) for label, text in lines.items() if label not in LEFT_OUT}
