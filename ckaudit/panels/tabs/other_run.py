"""The tab on another run: what changed compared with it."""

from ckaudit.contract.schema.diff import Departure, Drift, Pair
from ckaudit.contract.schema.diff import Word as DiffWord
from ckaudit.contract.schema.panels import Answered, Chart, Trace
from ckaudit.panels.first_page import LOSSES, is_wide
from ckaudit.panels.metric_charts import short
from ckaudit.panels.tab import TabBuilder, brief, tab

WORDS: dict[DiffWord, Answered] = {
    "same": "good",
    "within_noise": "good",
    "better": "watch",  # the first run, the one of the report, is then the worse one
    "worse": "bad",
    "different": "watch",
    "incomparable": "unknown",
    "not_recorded": "unknown",
}
OVERLAYS = {
    "train_loss_raw": "Do the losses part?",
    "val_loss": "Do the held-out losses part?",
    "learning_rate": "Was the rate the same?",
    "grad_global_norm": "Do the gradients part?",
    "tokens_per_sec": "Is one of them faster?",
    "update_to_weight_global": "Are the updates of one size?",
}


@tab(80, reads=tuple(OVERLAYS))
def other_run(builder: TabBuilder) -> tuple[Answered, str]:
    """What changed against the other run?"""
    comparison = builder.scene.comparison
    if comparison is None or not comparison.pairs:
        return "unknown", "There is no other run."
    pair = comparison.pairs[0]
    for name, title in OVERLAYS.items():
        log = name == "grad_global_norm" or (name in LOSSES and is_wide(builder.scene))
        builder.curves(f"both_{name}", title, name, log=log, marked=True)
    builder.add(_answers(pair))
    builder.add(_propagation(pair.propagation))
    for measure in dict.fromkeys(drift.measure for drift in pair.drifts):
        builder.add(_drifts(measure, [drift for drift in pair.drifts if drift.measure == measure]))
    for answer in pair.answers:
        builder.add_missing(f"{answer.title} {answer.message}" if answer.word in ("not_recorded", "incomparable") else "")
    for unlike in pair.unlike[:5]:
        builder.add_missing(f"Not alike: {unlike.message}")
    return WORDS[pair.word], brief(f"B against A: {pair.verdict}")


def _answers(pair: Pair) -> Chart | None:
    """Return every question with a number for both runs as the ratio of the second to the first."""
    both = [
        (answer.question, float(answer.left), float(answer.right))
        for answer in pair.answers
        if isinstance(answer.left, int | float) and isinstance(answer.right, int | float) and answer.left
    ]
    if not both:
        return None
    names, ratios = [name for name, _, _ in both], [short(right / left) for _, left, right in both]
    return Chart(
        id="both_answers",
        title="How many times as much is it in the second run?",
        shape="bars",
        x="question",
        unit="1",
        formula="b / a",
        traces=[Trace(name=f"{pair.right} over {pair.left}", x=list(names), y=list(ratios))],
        lines=[("alike", 1.0)],
    )


def _propagation(departures: list[Departure], *, max_departures: int = 40) -> Chart | None:
    """Return the step at which each quantity departed beyond noise."""
    if not departures:
        return None
    first = departures[:max_departures]
    names = [f"{departure.statistic} {departure.where}" if departure.where else departure.statistic for departure in first]
    return Chart(
        id="both_parting",
        title="What parted first, and what followed?",
        shape="bars",
        x="quantity",
        unit="step",
        metrics=list(dict.fromkeys(departure.statistic for departure in first)),
        note=first[0].message,
        traces=[Trace(name="first step outside the band", x=list(names), y=[departure.step for departure in first])],
    )


def _drifts(measure: str, drifts: list[Drift]) -> Chart:
    names = [f"{drift.where or drift.section} at step {drift.step}" for drift in drifts]
    values = [drift.value for drift in drifts]
    return Chart(
        id=f"both_{measure}",
        title=f"Which parts are farthest apart, by {measure.replace('_', ' ')}?",
        shape="bars",
        x="place",
        unit=drifts[0].unit,
        traces=[Trace(name=measure, x=list(names), y=list(values))],
        note=drifts[0].message,
    )
