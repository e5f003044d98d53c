"""WGT004: initial weights are far from the usual scale."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.activations import activation_rms
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.weights import weight_rms, weight_std
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series
from ckaudit.run.tensors import table_of

MAX_INPUTS = 2.0**14
"""Maximum number of inputs per output in most matrices, the width of Llama 3 405B: the spread is 1/128 of the gain at least."""

MIN_INPUTS = 4.0
"""Minimum number of inputs per output, except in toy models."""

MIN_SPREAD_SHARE = 0.9
"""Weights that were drawn about zero have a spread of this share of their size at least; a gain of one has hardly any spread."""

MIN_SHARE_BEYOND = 0.6
"""Share of the weights that must lie beyond a bound: half of them may be biases that began at zero."""

MIN_MATRICES = 4
"""With fewer matrices nothing can be said about most of them."""

LARGEST_GUESS = 12.5
"""Nats that a guess among the 262,144 tokens of the largest vocabularies costs."""

MIN_LAYERS = 6
"""Thirds of fewer layers are one layer each, and one may have a scale of its own."""

LOGISTIC_GAIN = 4.0
"""Gain with which matrices before logistic units are drawn, four times Glorot's (Glorot & Bengio 2010), give or take a tenth."""

MAX_FIRST_RATIO, FIRST_TENTH = 1.5, 0.1
"""First loss over the median of the first tenth: a model that is sure of wrong guesses pays many times what it soon does."""

USUAL_GAIN = 0.1
"""The least gain of the usual ways to draw a matrix."""

EARLY_STEPS = 100
"""A first checkpoint after more steps no longer shows how weights began."""


@rule(
    "WGT004", severity="sev2", needs=[weight_std], wants=[weight_rms, FACTS, train_loss_raw, activation_rms], unit="1", memory=1
)
def weight_scale_off(
    std: Series,
    rms: Series | None,
    facts: Manifest | None,
    loss: Series | None,
    outputs: Series | None,
    *,
    min_gain: float = 0.01,
    max_gain: float = 2.8,
    single_ratio: float = 3.0,
    max_signal_growth: float = 100.0,
) -> Iterator[Hit | Skip]:
    r"""Initial weights are far from the usual scale.

    ## What it checks
    The gain of each matrix at step 0, $\sigma\sqrt{\mathrm{fan\,in}}$: 0.58 for the default of PyTorch, 1 and 1.4 after Glorot
    and He, 0.02 times the root of the width for the GPTs (0.14 to 1.3):

    - The gain of the median matrix below `min_gain` or above `max_gain`, twice the largest of these, is sev2 (300 healthy
      trainings of 50 families: 0.15 to 0.83).
    - A single matrix above `max_gain` is noted while the median gain is at most 1; above 1, a single matrix is noted above
      `single_ratio` times `max_gain`.
    - Where nobody tells shapes, or step 0 is missing, the spread at the first checkpoint of the first hundred steps speaks alone.
    - Six tenths of all weights are sev2 below the spread of a gain of 0.1 in a layer of 16,384 inputs, or above that of
      `max_gain` in one of 4 (480 healthy trainings: 0.018 to 1).
    - Where neither says so, the signal does: weights are drawn so that each layer hands on what it gets at about the same scale
      (He et al. 2015).
    - The signal is off (sev2) where, from the first third of six layers and more to the last, the median output grows more than
      `max_signal_growth` times at step 0 or 1, and the first loss is above what any guess costs.
    - Healthy signals grow 0.006 to 17 times (300 trainings, up to step 10).
    ## Why it matters
    Weights that are far too large saturate outputs and make the first losses huge; weights that are far too small let hardly any
    gradient come back.
    ## False alarms
    Some models begin at a scale of their own:

    - Projections that start at zero by design are left out, and so are embeddings and tensors that do not multiply their inputs.
    - A single matrix has no layer behind it, and is not judged by its gain.
    - A run that goes on from trained weights has none of the usual scales, and is judged by the same wide band.
    - Logistic units have gains of four: up to there, a model whose first loss is like those of its first tenth has a note.
    """
    outcomes = list(_by_weights(std, rms, facts, loss, min_gain, max_gain, single_ratio))
    yield from outcomes
    if outputs is not None and not any(isinstance(outcome, Hit) and outcome.severity == "sev2" for outcome in outcomes):
        yield from _by_signal(outputs, facts, loss, max_signal_growth)


def _by_signal(outputs: Series, facts: Manifest | None, loss: Series | None, max_growth: float) -> Iterator[Hit]:
    """Yield where the outputs of layers grow with depth before anything is learnt, and the first loss shows it.

    A loss is always taken before the first update, and a writer may run the model behind it.
    """
    losses = _known_losses(loss)
    if not len(outputs.steps) or outputs.steps[0] > 1 or not len(losses) or losses[0] <= LARGEST_GUESS:
        return
    names = table_of(facts).in_depth_order(outputs.labels)
    sizes = outputs.values[0, [outputs.places[name] for name in names]]
    known = sizes[np.isfinite(sizes) & (sizes > 0)]
    if len(known) < MIN_LAYERS:
        return
    third = len(known) // 3
    growth = median(known[-third:]) / median(known[:third])
    if growth > max_growth:
        message = (
            "the output of a layer grows {value:.3g}-fold from the first third of the layers to the last, beyond {limit:.3g}"
        )
        yield _at_start("sev2", names[-1], float(growth), max_growth, message, int(outputs.steps[0]))


def _by_weights(
    std: Series,
    rms: Series | None,
    facts: Manifest | None,
    loss: Series | None,
    min_gain: float,
    max_gain: float,
    single_ratio: float,
) -> Iterator[Hit | Skip]:
    """Judge the gains of the matrices where shapes and step 0 are known, else the spread of all weights."""
    gains = _gains(std, facts) if facts is not None and len(std.steps) and std.steps[0] == 0 else {}
    if not gains:
        yield from _by_spread(std, rms, facts, max_gain)
        return
    if len(gains) == 1:
        yield Skip("not_applicable", "a single matrix has no layer behind it")
        return
    middle = median(list(gains.values()))
    if not min_gain <= middle <= max_gain:
        yield _at_start(
            "note" if max_gain < middle <= 1.1 * LOGISTIC_GAIN and _begins_calmly(loss) else "sev2",
            "median matrix",
            middle,
            max_gain if middle > max_gain else min_gain,
            "the initial gain of the median matrix is {value:.2g}, beyond {limit:.2g}: the usual is 0.1 to 1.4",
        )
        return
    for name, gain in gains.items():
        if gain > max_gain * (single_ratio if middle > 1 else 1.0):
            message = "the initial gain of {where} is {value:.2g}, while that of the median matrix is " + f"{middle:.2g}"
            yield _at_start("note", name, gain, max_gain, message)


def _begins_calmly(loss: Series | None) -> bool:
    """Tell whether the first loss is like those that follow."""
    values = _known_losses(loss)
    early = values[: max(3, int(FIRST_TENTH * len(values)))]
    return len(early) > 2 and float(early[0]) <= MAX_FIRST_RATIO * median(early)


def _known_losses(loss: Series | None) -> Floats:
    """Return the finite losses, none where no loss was logged."""
    return loss.finite_points()[1] if loss is not None and loss.labels else np.empty(0)


def _by_spread(std: Series, rms: Series | None, facts: Manifest | None, max_gain: float) -> Iterator[Hit | Skip]:
    """Judge the spread of all weights at an early checkpoint, whatever their shapes; gains and biases are known by their mean."""
    if not len(std.steps) or std.steps[0] > EARLY_STEPS or rms is None:
        yield Skip(
            "not_recorded", f"needs a checkpoint of the first {EARLY_STEPS} steps; the shapes of the matrices would say more"
        )
        return
    tensors = table_of(facts)
    drawn = std.only(lambda name: tensors.kind(name) not in ("norm", "embedding") and not is_bias(name))
    first, size = drawn.values[0], cells_like(drawn, rms)[0]
    spread = first[np.isfinite(first) & (first > MIN_SPREAD_SHARE * size) & (first > 0)]
    if len(spread) < MIN_MATRICES:
        yield Skip("too_few_points", f"{len(spread)} weights that were drawn about zero; {MIN_MATRICES} are needed")
        return
    low, high = (float(np.quantile(spread, share, method="nearest")) for share in (1 - MIN_SHARE_BEYOND, MIN_SHARE_BEYOND))
    lower, upper = USUAL_GAIN / np.sqrt(MAX_INPUTS), max_gain / np.sqrt(MIN_INPUTS)
    message = "most weights begin with a spread of {value:.2g} or %s, beyond {limit:.2g}: no width explains that"
    step = int(drawn.steps[0])
    if high < lower:
        yield _at_start("sev2", "median matrix", high, float(lower), message % "less", step)
    elif low > upper:
        yield _at_start("sev2", "median matrix", low, float(upper), message % "more", step)


def _at_start(severity: Severity, where: str, gain: float, limit: float, message: str, step: int = 0) -> Hit:
    """Return a hit of the first step."""
    return Hit.at([step], severity, message, where=where, value=gain, limit=limit, worst=0)


def _gains(std: Series, facts: Manifest) -> dict[str, float]:
    """Return the gain of each matrix at step 0, zero ones left out."""
    tensors = table_of(facts)
    gains = {}
    for column, name in enumerate(std.labels):
        fact = tensors.facts.get(name)
        shape = fact.shape if fact is not None and fact.shape is not UNSET else ()
        multiplies = len(shape) >= 2 and tensors.kind(name) != "embedding" and tensors.is_factor(name)
        if multiplies and std.finite[0, column] and std.values[0, column] > 0:
            gains[name] = float(std.values[0, column] * np.sqrt(np.prod(shape[1:])))
    return gains
