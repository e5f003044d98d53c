"""Write `docs/metrics.md` and `docs/questions.md`, the catalogues as documents: `python docs/make.py`."""  # noqa: INP001

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from ckaudit.explain import Page, explain
from ckaudit.explain.cited import MEANINGS
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Category, categories, entry_of
from ckaudit.questions import questions
from ckaudit.questions.phases import MAP, PHASES
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

INTERVIEW = """# Questions

Written by `docs/make.py` from the docstrings in `ckaudit/questions/`; `ckaudit explain D4.2` shows the same offline, and
`ckaudit triage RUN --questions` answers them for a run: good, watch, bad, not recorded or not applicable. An answer is never
better than the findings of the rules that bear on it: what is sev2 is to be watched at best, what is graver is bad. What is
missing is never good.

Fine-tuning is judged by what an evaluation logs under these names, scores from 0 to 1 or in percent:

| name | meaning |
|---|---|
| `microbench_score/coherence` | unseen text is continued as one text |
| `microbench_score/fluency` | the language is whole |
| `microbench_score/instruction_following` | what is asked is done, on instructions never trained on |
| `microbench_score/format_adherence` | answers have the format that was asked for |
| `microbench_score/consistency` | the same request gets answers of the same quality |
| `slice_val_loss/instruction` | held-out loss on text in the format of instructions |
"""


def interview() -> str:
    """Return the whole of `docs/questions.md`."""
    return "\n".join([INTERVIEW, *("\n".join(_phase(number)) for number in PHASES)])


def _phase(number: int) -> Iterator[str]:
    """Yield the pages of a phase's questions, and the commands that lead on."""
    yield f"## Phase {number}: {PHASES[number]}\n"
    elsewhere = {"asked by", "look on with", "cited", "phase"}
    for page in explain([each.id for each in questions().values() if each.phase == number]):
        kept = {label: said for label, said in page.facts.items() if label not in elsewhere}
        yield pages([replace(page, facts=kept)], level=3)
    for way in MAP:
        if number in way.phases:
            command = way.command.format(run="RUN", event="last") or f"ckaudit metrics RUN {' '.join(way.metrics)}"
            yield f"- {way.id} {way.question} {code(command)}"
    yield ""


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
    (HERE / "questions.md").write_text(interview(), encoding="utf-8")
