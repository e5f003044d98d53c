"""LOSS010: the held-out loss leaps, and comes back."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.loss import loss_part, train_loss_raw, val_loss
from ckaudit.metrics.optimizer import is_set_back, learning_rate
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.loss.loss_rises import why_other_terms_rise
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.run_facts import target_moves, why_loss_need_not_fall
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.spikes import passing_rise

BEYOND_UNTRAINED, LEARNT = 2.0, 0.5
"""A leap of one evaluation counts beyond twice an untrained model's loss, which chance does not reach, after half of that loss
had been learnt."""

MAX_PASSED_SHARE = 0.1
"""A leap over no more than this share of all evaluations is a note where the loss ends lower than before it."""

LOSSES_OF_A_LEVEL = 3
"""Number of losses whose median is the level that a model began with, or reached."""


@rule(
    "LOSS010",
    severity="sev2",
    needs=[val_loss],
    wants=[train_loss_raw, learning_rate, weight_rms, FACTS, loss_part],
    unit="nats/token",
)
def validation_spike(
    val: Series,
    train: Series | None,
    rate: Series | None,
    sizes: Series | None,
    facts: Manifest | None,
    terms: Series | None,
    *,
    min_evals: int = 3,
    min_rise: float = 0.1,
    min_lost_share: float = 0.1,
) -> Iterator[Hit | Skip]:
    """The held-out loss leaps, and comes back.

    ## What it checks
    The rule takes the largest rise of the held-out loss over its lowest level so far that came back by more than half
    (passing_rise). All of the first three hold, or the last one:

    - The rise took back at least `min_lost_share` of what had been learnt.
    - The held-out loss stood there for at least `min_evals` evaluations.
    - The held-out loss rose by more than `min_rise` of the level, and by six deviations of the noise of the evaluations until
      then.
    - A single evaluation is more than twice as bad as an untrained model, after three evaluations at less than half of its loss,
      and the last evaluation is as good again.
    ## Why it matters
    The model lost for a while what it had learnt, and learnt it again at the price of the steps in between. Updates were too
    large, or something that evaluations use was broken, such as the statistics of a normalization. A training loss that is logged
    seldom, or in another mode, shows none of it.
    ## False alarms
    Some rises cost nothing, or are planned:

    - Evaluations of few samples scatter; three in a row do not by chance.
    - The learning rate was set back to a level it had before: a planned restart takes back part of what was learnt, a note. Where
      no rate was recorded, this may have happened: a note.
    - A loss whose target moves, as that of a policy or of a student whose teacher follows it, may rise while all is well: it is
      not judged.
    - A rise that took no more than a tenth of the evaluations, after which the loss came lower than before, cost no more: a note.
    - Where terms of the loss are logged, and the reconstruction in training is no worse all the while, other terms rose: a note.
    """
    if why := why_loss_need_not_fall(facts) or ("its targets move" if target_moves(sizes, facts) else ""):
        yield Skip("not_applicable", why)
        return
    steps, losses = val.finite_points()
    if len(steps) < 2 * min_evals:
        yield from too_few(val, 2 * min_evals)
        return
    rise = passing_rise(losses, min_points=min_evals, min_share=min_rise)
    if rise is None or rise.lost < min_lost_share:
        yield from _worse_than_untrained(steps, losses, train)
        return
    severity, why = _how_grave(rate, int(steps[rise.first - 1]), int(steps[rise.last]))
    is_short = rise.last - rise.first + 1 <= MAX_PASSED_SHARE * len(losses)
    if is_short and median(losses[-LOSSES_OF_A_LEVEL:]) < rise.low:
        severity, why = "note", "; it was short, and the loss has come lower since"
    if train is not None and (other := why_other_terms_rise(terms, train.finite_points()[1])):
        severity, why = "note", f"; {other}"
    yield Hit.at(
        steps[rise.first : rise.last + 1],
        severity,
        f"the held-out loss rises to {{value:.4g}} from {{limit:.4g}}, {_as_words(rise.lost)} what had been learnt, "
        f"and comes back{why}",
        where="val_loss",
        value=float(losses[rise.peak]),
        limit=rise.low,
        worst=rise.peak - rise.first,
    )


def _as_words(lost: float) -> str:
    return f"{lost:.0%} of" if lost < 1 else "more than"


def _how_grave(rate: Series | None, since: int, until: int) -> tuple[Severity, str]:
    """Return the severity of a rise that came back, and the reason where a restart of the learning rate makes it a note."""
    if rate is None or not rate.finite.any():
        return "note", "; a restart of the learning rate, which was not recorded, would do the same"
    return ("note", "; the learning rate had been set back") if is_set_back(rate, since, until) else ("sev2", "")


def _worse_than_untrained(steps: Steps, val: Floats, train: Series | None) -> Iterator[Hit]:
    """Yield evaluations far worse than an untrained model's, between evaluations at less than half of its loss."""
    known = train.finite_points()[1] if train is not None else np.empty(0)
    if len(known) < 2 * LOSSES_OF_A_LEVEL:
        return
    untrained = median(known[:LOSSES_OF_A_LEVEL])
    are_learnt = np.cumsum(val < LEARNT * untrained)
    high = np.flatnonzero((val > BEYOND_UNTRAINED * max(untrained, val[0])) & (are_learnt >= LOSSES_OF_A_LEVEL))
    if untrained <= 0 or not len(high) or val[-1] > LEARNT * untrained:
        return
    yield Hit.at(
        steps[high],
        "note" if len(high) <= MAX_PASSED_SHARE * len(val) else "sev2",
        "the held-out loss leaps to {value:.4g}, far more than the {limit:.4g} of an untrained model, and comes back",
        where="val_loss",
        value=float(val[high].max()),
        limit=untrained,
        worst=int(np.argmax(val[high])),
    )
