"""The tables of docs/everyday.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.everyday.catalogue import ill_name
from benchmarks.everyday.healthy import healthy_trainings
from benchmarks.everyday.mistakes import mistakes
from benchmarks.everyday.outcome import SURE, Score, Verdict, score
from benchmarks.everyday.tasks import TASKS

PAGE = Path(__file__).parents[2] / "docs" / "everyday.md"
MARK = "<!-- written by benchmarks/everyday -->"


def tables(forms: Mapping[str, Mapping[str, Verdict]]) -> str:
    """Return the tables and the lines that count: of all forms in which trainings were judged, and by name as recorded."""
    recorded = forms["recorder"]
    return "\n".join([*_of_forms(forms), "", *_of_healthy(recorded), "", *_of_mistakes(recorded)])


def _of_forms(forms: Mapping[str, Mapping[str, Verdict]]) -> list[str]:
    rows = []
    for form, verdicts in forms.items():
        healthy_ones = [verdict for name, verdict in verdicts.items() if "." not in name]
        real = [each for each in _scores(verdicts).values() if each.effect]
        found, named, misled = (sum(getattr(each, mark) for each in real) for mark in ("found", "named", "misled"))
        flagged = sum(bool(verdict.findings) for verdict in healthy_ones)
        rows.append(f"| {form} | {flagged} of {len(healthy_ones)} | {found} of {len(real)} | {named} | {misled} |")
    return _table(
        ["form", "healthy ones with a finding", "mistakes found", "named first", "called something else, and sure"], rows
    )


def _of_healthy(verdicts: Mapping[str, Verdict]) -> list[str]:
    about = {name: (make.__doc__ or "").strip().rstrip(".") for name, make in (TASKS | healthy_trainings()).items()}
    there = {name: verdicts[name] for name in about if name in verdicts}
    flagged = sum(bool(verdict.findings) for verdict in there.values())
    rows = [f"| {name} | {about[name]} | {', '.join(verdict.findings) or '-'} |" for name, verdict in there.items()]
    told = f"{flagged} of {len(there)} healthy trainings have a finding of sev2 or worse."
    return [told, "", *_table(["training", "what it is", "findings"], rows)]


def _scores(verdicts: Mapping[str, Verdict]) -> dict[tuple[str, str], Score]:
    """Return what came of each mistake to each task, of those that were judged."""
    return {
        (mistake.name, task): score(mistake, verdicts[ill_name(task, mistake.name)], verdicts[task])
        for mistake in mistakes().values()
        for task in mistake.tasks
        if {task, ill_name(task, mistake.name)} <= verdicts.keys()
    }


def _of_mistakes(verdicts: Mapping[str, Verdict]) -> list[str]:
    scores = _scores(verdicts)
    tasks = [task for task in TASKS if any(column == task for _, column in scores)]
    rows = []
    for name in dict.fromkeys(name for name, _ in scores):
        cells = [scores[name, task].cell if (name, task) in scores else "" for task in tasks]
        rows.append(f"| {name} | {mistakes()[name].about} | {' | '.join(cells)} |")
    return [*_counts(list(scores.values())), "", *_table(["mistake", "what is wrong", *tasks], rows)]


def _counts(scores: Sequence[Score]) -> list[str]:
    real, idle = ([each for each in scores if each.effect is effect] for effect in (True, False))
    found, named, misled = (sum(getattr(each, mark) for each in real) for mark in ("found", "named", "misled"))
    told = f"{named} are named first, {misled} are called something else with a confidence of {SURE} or more."
    return [
        f"{found} of {len(real)} mistakes with an effect are found: {told}",
        f"{len(idle)} more have no effect; {sum(each.found for each in idle)} of them are found.",
    ]


def _table(head: Sequence[str], rows: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]


def write(found: str) -> None:
    """Put the tables behind the mark of their page, in place of what stands there."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text[: text.index(MARK) + len(MARK)] + "\n\n" + found + "\n", encoding="utf-8")
