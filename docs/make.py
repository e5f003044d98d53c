"""Write `docs/metrics.md`, the catalogue of metrics as one document: `python docs/make.py`."""  # noqa: INP001

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from ckaudit.explain import Page, explain
from ckaudit.explain.cited import MEANINGS
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Category, categories, entry_of
from ckaudit.reports.explain.markdown import code, pages, text

HERE = Path(__file__).parent
# What a covered metric shares with the one that tells about it.
SHARED = {"category", "recorded by", "cited"}
INTRODUCTION = """# Metrics

Written by `docs/make.py` from the docstrings of the metrics and the files in `ckaudit/metrics/catalogue/`; `ckaudit explain NAME`
shows the same offline. T are steps, C checkpoints, E evaluations, P tensors, M modules, L blocks, H heads, R ranks, B batches.

A metric is a *must*, a *should* or *nice* to have by the scale of the run (nano: one device and hours; medium: a node and days;
large: a cluster and weeks) and by its stage (early: to the end of warm-up; late: while the learning rate decays to its end).
"""


def document() -> str:
    """Return the whole of `docs/metrics.md`."""
    cited = "Sources cite, by example:\n\n" + "".join(f"- {text(meaning)}\n" for meaning in MEANINGS.values())
    parts = [INTRODUCTION, cited, *("\n".join(_category(category)) for category in categories())]
    if alone := [name for name in metrics() if entry_of(name) is None]:
        parts.append("## Metrics without a playbook\n\n" + pages([_short(page) for page in explain(alone)], level=3))
    return "\n".join(parts)


def _category(category: Category) -> Iterator[str]:
    """Yield the table of a category, then the page of each entry and short ones of what it covers."""
    yield f"## {text(category.title)}\n"
    yield "| metric | row | nano | medium | large | early | steady | late | alert |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, entry in category.entries.items():
        scale, stage = entry.scale, entry.stage
        words = (scale.nano, scale.medium, scale.large, stage.early, stage.steady, stage.late)
        yield f"| [{code(name)}](#{name}) | {' '.join(entry.rows)} | {' | '.join(words)} | {text(entry.alert)} |"
    yield ""
    for name, entry in category.entries.items():
        page = _page(name)
        yield pages([replace(page, facts={label: said for label, said in page.facts.items() if label != "cited"})], level=3)
        if entry.covers:
            yield pages([_short(_page(other)) for other in entry.covers], level=4)


def _page(name: str) -> Page:
    return next(page for page in explain([name]) if page.kind == "metric" and page.name == name)


def _short(page: Page) -> Page:
    """Return a page without what the page of its entry says already."""
    facts = {label: said for label, said in page.facts.items() if label not in SHARED}
    return replace(page, facts=facts, importance={}, sections=(), shapes=None)


if __name__ == "__main__":
    (HERE / "metrics.md").write_text(document(), encoding="utf-8")
