"""Phase 7: the protocol of memorization, and the five points of its curve."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ckaudit.contract.schema.report import Word
from ckaudit.metrics.memorization import memorization_curve, memorization_gap, memorization_stage, probe_overlap
from ckaudit.metrics.probes import probe_accuracy, probe_perplexity
from ckaudit.questions.question import SeriesAnswer, not_applicable, not_recorded, question, word_if_high
from ckaudit.questions.values import points
from ckaudit.run.series import Series


class Milestone(NamedTuple):
    """One point of the curve: a step, the percent of training probes continued exactly there, and what that means."""

    step: int
    low: float
    high: float
    meaning: str


CURVE = (
    Milestone(0, 0, 5, "untrained"),
    Milestone(100, 5, 15, "token statistics"),
    Milestone(500, 30, 50, "patterns"),
    Milestone(2000, 70, 90, "strong memorization"),
    Milestone(5000, 90, 100, "mostly memorized"),
)
"""Rows MPC-1 to MPC-5 of the playbook."""


@question("MP-1", wants=[probe_perplexity, probe_accuracy])
def probes_reserved(
    perplexity: Series | None, accuracy: Series | None, *, min_passages: int = 10, first: int = 10
) -> SeriesAnswer:
    """Were fixed probes reserved before training?

    ## Looks at
    How many probes were scored, and the first step at which they were.
    ## Good
    At least `min_passages` (playbook MP-1: 10 to 20), scored by step `first`, before training has taught anything.
    ## Watch
    Fewer, or later: the start of the curve is lost. `first` is a starting value.
    """
    scored = perplexity if perplexity is not None else accuracy
    if scored is None:
        return not_recorded(
            "no probe was scored; ckaudit probe memorization scores continuations", "probe_perplexity", "probe_accuracy"
        )
    step = int(scored.steps[scored.finite.any(axis=1)][0])
    if perplexity is None:
        return not_recorded(f"probes were scored from step {step} on; how many is not said", "probe_perplexity")
    count = len(perplexity.labels)
    text, numbers = f"{count} probes were scored, first at step {step}", {"probes": float(count), "first_step": float(step)}
    return SeriesAnswer(word="good" if count >= min_passages and step <= first else "watch", sentence=text, numbers=numbers)


@question("MP-2", wants=[probe_accuracy, probe_overlap, probe_perplexity])
def probes_scored(exact: Series | None, overlap: Series | None, perplexity: Series | None, *, min_steps: int = 2) -> SeriesAnswer:
    """Are continuations scored at the checkpoints?

    ## Looks at
    Exact match, overlap, and the perplexity of the true continuation, at how many steps each.
    ## Good
    All three, at `min_steps` steps or more (playbook MP-2; two points are the least that make a curve).
    ## Watch
    All three, but at fewer steps.
    """
    named = {"probe_accuracy": exact, "probe_overlap": overlap, "probe_perplexity": perplexity}
    counts = {name: series.points for name, series in named.items() if series is not None}
    text = ", ".join(f"{name} at {count} steps" for name, count in counts.items()) or "no continuation was scored"
    if missing := [name for name in named if name not in counts]:
        return not_recorded(text, *missing)
    numbers = {name: float(count) for name, count in counts.items()}
    return SeriesAnswer(word="good" if min(counts.values()) >= min_steps else "watch", sentence=text, numbers=numbers)


@question("MP-3", needs=[memorization_curve, memorization_stage])
def curve_followed(curve: Series, stage: Series, *, given_back: float = 10.0) -> SeriesAnswer:
    """How does the curve of memorization run?

    ## Looks at
    The share of the tokens of training probes that is continued exactly, from the first score to the last.
    ## Good
    The share rises, or has come to its last stage (playbook MP-3).
    ## Watch
    The share stays where it was, or gave back more than `given_back` points of its highest (a starting value).
    """
    steps, values = points(curve)
    if len(values) < 2:
        return not_recorded("the probes were scored once; a curve has two points", "probe_accuracy")
    start, end, top = float(values[0]), float(values[-1]), float(values.max())
    level = int(points(stage).last[1])
    text = f"it goes from {start:.3g} % at step {steps[0]} to {end:.3g} % at step {steps[-1]}, {CURVE[level].meaning}"
    if top > end:
        text += f"; the highest was {top:.3g} %"
    rises = (end > start or level == len(CURVE) - 1) and top - end <= given_back
    numbers = {"first": start, "last": end, "highest": top, "stage": float(level)}
    return SeriesAnswer(word="good" if rises else "watch", sentence=text, numbers=numbers)


@question("MP-4", needs=[memorization_gap], rules=("memorization_rising", "split_overlap"))
def gap_to_held_out(gap: Series, *, watch: float = 0.2, bad: float = 0.5) -> SeriesAnswer:
    """Does what is memorized generalize?

    ## Looks at
    The accuracy of training probes less that of held-out ones, at the last score (playbook MP-4: the best indicator of
    generalization).
    ## Good
    At most `watch`.
    ## Watch
    More.
    ## Bad
    More than `bad`: seen text is known by heart, other text is not. Both are starting values.
    """
    step, value = points(gap).last
    text = f"at step {step} training probes are continued better than held-out ones by {100 * value:.3g} points"
    return SeriesAnswer(word=word_if_high(value, watch=watch, bad=bad), sentence=text, numbers={"gap": value})


def _milestone(number: int, at: Milestone) -> Callable[..., SeriesAnswer]:
    """Return the question whether the curve is where the playbook has it at one step."""

    def answer(curve: Series, *, near: float = 0.25) -> SeriesAnswer:
        steps, values = points(curve)
        if steps[-1] < at.step * (1 - near):
            return not_applicable(f"the record ends at step {steps[-1]}, before step {at.step}")
        is_last = at is CURVE[-1] and steps[-1] >= at.step  # the last row goes on: "5,000 and more"
        row = len(steps) - 1 if is_last else int(np.argmin(np.abs(steps - at.step)))
        if abs(int(steps[row]) - at.step) > near * at.step and not is_last:
            return not_recorded(f"the nearest score to step {at.step} is that of step {steps[row]}", "probe_accuracy")
        value = float(values[row])
        text = f"at step {steps[row]} {value:.3g} % of the tokens of training probes are continued exactly; the playbook's"
        text += f" {at.meaning} has {at.low:g} to {at.high:g} %"
        word: Word = "good" if at.low <= value <= at.high else "watch"
        if at.step == 0 and value > CURVE[1].high:
            word = "bad"
        return SeriesAnswer(word=word, sentence=text, numbers={"exact": value, "low": at.low, "high": at.high})

    answer.__name__ = f"curve_at_step_{at.step}"
    worst = (
        "## Watch\nMore than that; with few different tokens some are hit by chance.\n"
        f"## Bad\nMore than {CURVE[1].high:g} %, as after a hundred steps: the model was trained on them."
        if at.step == 0
        else "## Watch\nLess, so that it learns slowly or sees much text once; or more, so that it repeats few texts."
    )
    answer.__doc__ = (
        f"Is memorization where it should be at step {at.step}: {at.meaning}?\n\n"
        "## Looks at\nThe share of the tokens of training probes that is continued exactly, at the score nearest to step "
        f"{at.step}, within `near` of it (a starting value){', or at the last one after it' if at is CURVE[-1] else ''}.\n"
        f"## Good\n{at.low:g} to {at.high:g} % (playbook MPC-{number}).\n{worst}"
    )
    return answer


for _number, _at in enumerate(CURVE, start=1):
    question(f"MPC-{_number}", needs=[memorization_curve])(_milestone(_number, _at))
