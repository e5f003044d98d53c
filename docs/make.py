"""Write the catalogues of metrics, rules, causes and questions, API and options, into docs/generated: `python docs/make.py`."""  # noqa: INP001

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ckaudit.causes import causes
from ckaudit.contract.schema.scalars import NAMES
from ckaudit.diff.siblings.kinds import KINDS
from ckaudit.explain import Page, explain
from ckaudit.explain.docstring import MEANINGS
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Category, categories, entry_of
from ckaudit.questions import questions
from ckaudit.questions.question import MAP, PHASES
from ckaudit.reports.escape import backticks as code
from ckaudit.reports.escape import prose as text
from ckaudit.reports.explain import markdown_pages
from ckaudit.rules import rules
from ckaudit.run.run import FILE_FACTS

FOLDER = Path(__file__).parent / "generated"
# Facts that a covered metric shares with the metric whose entry covers it.
SHARED = {"category", "recorded by", "cited"}
INTRODUCTION = """# Metrics

Written by `docs/make.py` from the docstrings of the metrics and the files in `ckaudit/metrics/catalogue/`; `ckaudit explain NAME`
shows the same offline. T are steps, C checkpoints, E evaluations, P tensors, M modules, L blocks, H heads, R ranks, B batches.

A metric is a *must*, a *should* or *nice* to have by the scale of the run (nano: one device and hours; medium: a node and days;
large: a cluster and weeks) and by its stage (early: to the end of warm-up; late: while the learning rate decays to its end).
"""

RULES = """# Rules

Written by `docs/make.py` from the docstrings in `ckaudit/rules/`; `ckaudit explain CODE` shows the same offline. A rule
recognises an illness in series of [metrics](metrics.md); what may lie behind it are its [causes](causes.md). A rule is skipped,
and says so, where what it needs was not recorded. Every limit below can be set in a [policy](../policy.md).

| severity | meaning |
|---|---|
| sev0 | stop the run |
| sev1 | contain it quickly |
| sev2 | investigate |
| note | worth knowing |

Beside each rule stand a healthy and an ill series on one axis, and the trainings of the lab in which an audit really found it
(`ckaudit lab run NAME`; `docs/shown.py` has looked at all of them). "lab" in the source of a limit means those trainings.
"""

CAUSES = """# Causes

Written by `docs/make.py` from the docstrings in `ckaudit/causes/`; `ckaudit explain NAME` shows the same offline. A cause
weighs findings of [rules](rules.md) and series of [metrics](metrics.md). Each piece of evidence for it adds its weight to the
log odds, each against it takes it away, from the odds before any evidence on; a diagnosis shows them all. It is considered where
one of the rules that it explains has found something. What it may bring with it does not suggest it, but needs no other cause
once it stands.

Beside each cause stand the trainings of the lab in which it really comes first (`ckaudit lab run NAME`).
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
    """Return the whole of `questions.md`."""
    return "\n".join([INTERVIEW, *("\n".join(_phase(number)) for number in PHASES)])


def _phase(number: int) -> Iterator[str]:
    """Yield the pages of a phase's questions, and the commands that lead further."""
    yield f"## Phase {number}: {PHASES[number]}\n"
    elsewhere = {"asked by", "look on with", "cited", "phase"}
    for page in explain([question.id for question in questions().values() if question.phase == number]):
        kept = {label: value for label, value in page.facts.items() if label not in elsewhere}
        yield markdown_pages([replace(page, facts=kept)], level=3)
    for way in MAP:
        if number in way.phases:
            command = way.command.format(run="RUN", event="last") or f"ckaudit metrics RUN {' '.join(way.metrics)}"
            yield f"- {way.id} {way.question} {code(command)}"
    yield ""


def illnesses() -> str:
    """Return the whole of `rules.md`."""
    found = [_page(rule.name, "rule") for rule in rules().values()]
    rows = ["| code | rule | at most | what it sees |", "|---|---|---|---|"]
    rows += [
        f"| {' '.join(each.ids)} | {_link(each)} | {each.facts['severity'].split()[0]} | {text(each.title)} |" for each in found
    ]
    return "\n".join([RULES, _cited(), *rows, "", *_beside_siblings(), markdown_pages([_uncited(each) for each in found])])


def _beside_siblings() -> Iterator[str]:
    """Yield the table of departures from the band of healthy siblings, which are not rules but are reported like them."""
    yield "Beside healthy siblings ([--like](../siblings.md)) more is found:\n"
    yield "| code | name | at most | what it sees |"
    yield "|---|---|---|---|"
    yield from (f"| {kind.code} | {code(kind.name)} | {kind.severity} | {text(kind.title)} |" for kind in KINDS)
    yield ""


def hypotheses() -> str:
    """Return the whole of `causes.md`."""
    found = [_page(name, "cause") for name in causes()]
    rows = ["| cause | what it is | first knob |", "|---|---|---|"]
    rows += [f"| {_link(each)} | {text(each.title)} | {text(causes()[each.name].knob)} |" for each in found]
    return "\n".join([CAUSES, *rows, "", markdown_pages(found)])


def _cited() -> str:
    return "Sources cite, by example:\n\n" + "".join(f"- {text(meaning)}\n" for meaning in MEANINGS.values())


def _uncited(page: Page) -> Page:
    return replace(page, facts={label: value for label, value in page.facts.items() if label != "cited"})


def _link(page: Page) -> str:
    return f"[{code(page.name)}](#{page.name})"


def document() -> str:
    """Return the whole of `metrics.md`."""
    parts = [INTRODUCTION, _cited(), *("\n".join(_category(category)) for category in categories())]
    if alone := [name for name in metrics() if entry_of(name) is None]:
        parts.append("## Metrics without a playbook\n\n" + markdown_pages([_short(page) for page in explain(alone)], level=3))
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
        yield markdown_pages([_uncited(page)], level=3)
        if entry.covers:
            yield markdown_pages([_short(_page(other)) for other in entry.covers], level=4)


def _page(name: str, kind: str = "metric") -> Page:
    return next(page for page in explain([name]) if page.kind == kind and page.name == name)


def _short(page: Page) -> Page:
    """Return a page without what its entry's page says already."""
    facts = {label: value for label, value in page.facts.items() if label not in SHARED}
    return replace(page, facts=facts, importance={}, sections=(), shapes=None)


def reference() -> str:
    """Return the whole of `api.md`."""
    text_of: str = runpy.run_path(str(Path(__file__).with_name("api_reference.py")))["document"]()
    return text_of


OPTIONS = """# Every option

Written by `docs/make.py`: what `ckaudit COMMAND --help` prints. What the commands are for stands in [commands](../commands.md).
"""


def options() -> str:
    """Return the whole of `options.md`."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from ckaudit.cli.app import build

    app, whole = build(), [OPTIONS]
    for words in _commands(get_command(app)):
        shown = CliRunner().invoke(app, [*words, "--help"], prog_name="ckaudit", terminal_width=100, color=False).output
        whole.append(f"## ckaudit {' '.join(words)}\n\n```text\n{shown.strip()}\n```\n")
    return "\n".join(whole)


def _commands(group: Any, *before: str) -> Iterator[list[str]]:
    """Yield the words of each command of the program; those of a group follow its name."""
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, *before, name)
        else:
            yield [*before, name]


SCALARS = """# Scalars

Written by `docs/make.py` from what metrics and rules read. A line of `scalars.jsonl` holds any of these names with a number (see
[the contract](../../schemas/README.md)):

```json
{"step": 1, "train_loss_raw": 10.83, "grad_global_norm": 2.4, "learning_rate": 3e-6}
```

A label follows a slash, as in `slice_val_loss/regular`. Where a value is 1 for yes and 0 for no, `true` and `false` mean the
same; under any other name they are no number. Any other name may be logged too: it is kept, shown and exported, and no rule reads
it. Rules in the table read the scalar itself or a metric that is computed from it.

| name | unit | what it is | rules |
|---|---|---|---|
"""
# Names that no metric has for its own.
OTHER_SCALARS = {
    "grad_noise_signal": ("1", "Squared norm of the expected gradient, of which `grad_noise_scale` is made."),
    "grad_noise_trace": ("1", "Trace of the covariance of the gradient, of which `grad_noise_scale` is made."),
    "loss": ("nats/token", "Short for `train_loss_raw`."),
    "loss_irregular": ("nats/token", "Held-out loss of irregular forms."),
    "loss_regular": ("nats/token", "Held-out loss of regular forms."),
    "time": ("s", "When the line was written, Unix time."),
}


def scalars() -> str:
    """Return the whole of `scalars.md`."""
    return SCALARS + "\n".join(_scalar(name) for name in scalar_names()) + "\n"


def scalar_names() -> list[str]:
    """Return every name under which a scalar is read."""
    read = {name for metric in metrics().values() for name in metric.reads if "." not in name}
    return sorted((read | NAMES) - set(FILE_FACTS))


def _scalar(name: str) -> str:
    """Return the row of a scalar: its unit, its meaning, and the rules that read it."""
    own = metrics().get(name)
    if own is None:
        unit, title = OTHER_SCALARS[name]
    else:
        unit, title = own.unit, own.title
    readers = [rule for rule in rules().values() if any(name in metric.reads for metric in rule.metrics)]
    linked = ", ".join(f"[{rule.code}](rules.md#{rule.name})" for rule in readers)
    page = f"[{code(name)}](metrics.md#{name})" if own else code(name)
    return f"| {page} | {text(unit)} | {text(title)} | {linked} |"


DOCUMENTS = {
    "scalars.md": scalars,
    "options.md": options,
    "metrics.md": document,
    "rules.md": illnesses,
    "causes.md": hypotheses,
    "questions.md": interview,
    "api.md": reference,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text_of in DOCUMENTS.items():
        (FOLDER / name).write_text(text_of(), encoding="utf-8")
