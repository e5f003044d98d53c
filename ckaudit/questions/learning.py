"""Phase 2: does it learn? The course of the loss, what is known by heart, and whether all layers take part."""

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Word
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.heads import head_kind_share
from ckaudit.metrics.loss import loss_part, train_loss_raw, val_loss
from ckaudit.metrics.memorization import memorization_curve, probe_group_perplexity
from ckaudit.metrics.movement import moving_share
from ckaudit.metrics.probes import TRAIN
from ckaudit.metrics.scaling import entropy_floor, loss_above_floor, unigram_entropy
from ckaudit.metrics.weights import relative_movement, weight_rms
from ckaudit.questions.question import (
    SeriesAnswer,
    lenient_before,
    not_applicable,
    not_recorded,
    question,
    word_if_high,
    word_if_low,
    worst_of,
)
from ckaudit.questions.values import is_matrix, largest, last_row, levels, points, smallest, why_no_fall
from ckaudit.rules.loss.loss_rises import why_other_terms_rise
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.layer_not_contributing import layer_not_contributing
from ckaudit.run.falls import early_fall, steepest_tenth
from ckaudit.run.oscillation import oscillation
from ckaudit.run.rises import falls_from_each_jump, sustained_rise
from ckaudit.run.run_facts import why_not_judged_as_loss
from ckaudit.run.series import Floats, Series
from ckaudit.run.tensors import TensorTable, table_of

HORIZON = 100
"""Steps and points that a course of the loss is judged on (playbook D2.1: a hundred and more)."""
MIN_POINTS = 6
"""Points that a course of the loss needs, where each level has one."""
MAX_GIVEN_BACK_SHARE = 0.25
"""A loss that gives back a larger share of its fall goes up and down."""
STANDSTILL_RULES = ("loss_not_falling", "score_stands", "return_stands", "learning_rate_zero", "skipped_updates")
"""Rules that tell a loss that stands still for lack of training from a loss that has come to its end."""


@question(
    "D2.1",
    needs=[train_loss_raw],
    wants=[FACTS, relative_movement, val_loss, weight_rms, loss_part],
    rules=(
        "nonfinite_values",
        "hidden_nonfinite",
        "loss_not_falling",
        "score_stands",
        "return_stands",
        "loss_rises",
        "loss_frozen",
        "loss_oscillates",
    ),
)
def loss_decreasing(
    loss: Series,
    facts: Manifest | None,
    moved: Series | None,
    val: Series | None,
    sizes: Series | None,
    terms: Series | None,
    *,
    horizon: int = HORIZON,
    min_fall_share: float = 0.01,
    lost: float = 0.5,
) -> SeriesAnswer:
    """Does the loss decrease over a real horizon?

    ## Looks at
    Ten levels of the training loss from start to end, once it goes over `horizon` steps (playbook D2.1) and has six points, two
    for each third.
    ## Good
    The last level is below the first by more than `min_fall_share` of it.
    ## Watch
    The loss goes up and down, or there is a reason why it does not fall:

    - It oscillates: it has risen from its lowest level again by more than a quarter of its fall, or more than a quarter of its
      way went up.
    - It does not fall in a log that begins in the middle of its run, or that is so noisy that a fall of `min_fall_share` would
      not be seen.
    - It does not fall in a log that stops while evaluations go on for as long again.
    - It does not fall, and is that of a model of tokens, which may rest so early (as loss_not_falling has it).
    - It does not fall, and had come below `lost` of its first value within the first level.
    - Other terms of the loss rise than the reconstruction (as in loss_rises).
    ## Bad
    The loss does not fall, or does not keep what it gained:

    - It oscillates and does not fall (as loss_oscillates has it), or does not fall.
    - It gave back more than `lost` of its fall in a rise that no batch makes, and from which it does not fall on (as loss_rises
      has it).
    - `min_fall_share` and `lost` are starting values.
    """
    steps, values = points(loss)
    if undirected := why_not_judged_as_loss(facts, values, sizes):
        return not_applicable(undirected)
    if len(values) < MIN_POINTS or steps[-1] - steps[0] < horizon - 1:
        wanted = f"{MIN_POINTS}, over {horizon} steps, are needed"
        return not_recorded(f"{len(values)} points of train_loss_raw; {wanted}", "train_loss_raw")
    stages = levels(values, 10)
    first, end, lowest = float(stages[0]), float(stages[-1]), float(stages.min())
    moves = np.diff(stages)
    up = float(np.maximum(moves, 0).sum() / np.abs(moves).sum()) if moves.any() else 0.0
    back = (end - lowest) / (first - lowest) if first > lowest else 1.0
    text = f"from steps {steps[0]} to {steps[-1]} the level of the loss goes from {first:.4g} to {end:.4g}"
    numbers = {"first": first, "last": end, "lowest": lowest, "up": up}
    if max(back, up) > MAX_GIVEN_BACK_SHARE and first > lowest:
        text += f", after {lowest:.4g} at its lowest; {up:.0%} of its way goes up"
    stands = first - end <= min_fall_share * abs(first)
    harmless = why_other_terms_rise(terms, values) if stands or back > lost else ""
    if stands and end < lost * values[0]:
        harmless = f"it had fallen from {values[0]:.4g} by then, and rests"
    if harmless:
        return SeriesAnswer(word="watch", sentence=f"{text}; {harmless}", numbers=numbers)
    if stands and oscillation(values) is not None:
        return SeriesAnswer(word="bad", sentence=f"{text}; it oscillates, and gets no lower", numbers=numbers)
    if stands and (why := why_no_fall(steps, values, min_fall_share, facts, moved, val)) is not None:
        return SeriesAnswer(word="watch" if why else "bad", sentence=text + (f"; {why}" if why else ""), numbers=numbers)
    rise = sustained_rise(values) if back > lost else None
    stays = rise is not None and not falls_from_each_jump(values[rise.onset :], rise)
    word: Word = "bad" if stays else "watch" if max(back, up) > MAX_GIVEN_BACK_SHARE or stands else "good"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question("D2.2", needs=[probe_group_perplexity], wants=[memorization_curve])
def memorizing(perplexity: Series, curve: Series | None, *, known: float = 0.5, unknown: float = 0.1) -> SeriesAnswer:
    """Does it memorize the training data?

    ## Looks at
    The log of the perplexity of probes that training sees, against its highest, and how much of these probes is continued
    exactly.
    ## Good
    The perplexity went `known` of the way to 1 or more (playbook D2.2: towards 1 on repeated data). `known` and `unknown` are
    starting values.
    ## Watch
    It went less than that.
    ## Bad
    It went less than `unknown` of the way: it stays high.
    """
    steps, values = points(perplexity, TRAIN)
    if not len(values) or values.max() <= 1:
        return not_recorded("no probe of training was scored", "probe_perplexity")
    start, end = float(values.max()), float(values[-1])
    way = 1 - float(np.log(max(end, 1.0)) / np.log(start))
    text = f"the perplexity of training probes is {end:.4g} at step {steps[-1]}, after {start:.4g} at its highest"
    numbers = {"first": start, "last": end, "way": way}
    if curve is not None:
        step, numbers["exact"] = points(curve).last
        text += f"; {numbers['exact']:.3g} % of their tokens are continued exactly at step {step}"
    return SeriesAnswer(word=word_if_low(way, watch=known, bad=unknown), sentence=text, numbers=numbers)


@question(
    "D2.3",
    needs=[train_loss_raw],
    wants=[FACTS, weight_rms],
    rules=("nonfinite_values", "hidden_nonfinite", "loss_not_falling", "loss_rises", "loss_frozen"),
)
def memorizing_fast(
    loss: Series,
    facts: Manifest | None,
    sizes: Series | None,
    *,
    horizon: int = HORIZON,
    early: float = 0.1,
    steep: float = 0.25,
    shallow: float = 1.3,
    bent: float = 1.5,
    min_fall_share: float = 0.01,
) -> SeriesAnswer:
    """How fast does it memorize?

    ## Looks at
    How much of the whole fall of the loss is made in the first `early` of the record's steps, once the record goes over `horizon`
    steps and has six points. Where fewer than three points lie in there, the loss at their end is read off the line between its
    neighbours.
    ## Good
    At least `steep` of the fall is made there: the drop at first is steep (playbook D2.3).
    ## Watch
    The drop at first is not steep, or does not last, or cannot be seen:

    - Less than `steep` of the fall is made there.
    - More than a quarter of what was made is lost again (as in D2.1).
    - Hardly any of the fall is made there, and the drop comes later: a tenth of the record falls more than `bent` times as fast
      as a straight line, as behind a long warm-up.
    - A steep drop might be hidden in the noise.
    ## Bad
    The learning rate, the capacity or the data hold the fall back:

    - Less than `shallow` times what a straight line would make of the fall is made there, and no such drop comes later.
    - The loss does not fall by `min_fall_share` at all.
    - `steep`, `shallow`, `bent` and `min_fall_share` are starting values.
    """
    steps, values = points(loss)
    if undirected := why_not_judged_as_loss(facts, values, sizes):
        return not_applicable(undirected)
    if len(values) < MIN_POINTS or steps[-1] - steps[0] < horizon - 1:
        wanted = f"{MIN_POINTS}, over {horizon} steps, are needed"
        return not_recorded(f"{len(values)} points of train_loss_raw; {wanted}", "train_loss_raw")
    start, soon, end, error, line = early_fall(steps, values, early)
    if start - end <= min_fall_share * abs(start):
        numbers, why = {"first": start, "last": end}, why_no_fall(steps, values, min_fall_share)
        text = f"the loss does not fall: {start:.4g} at first, {end:.4g} at last" + (f"; {why}" if why else "")
        return SeriesAnswer(word="watch" if why or why is None else "bad", sentence=text, numbers=numbers)
    share, hidden = min(1.0, (start - soon) / (start - end)), 2 * error / (start - end)
    back = (end - soon) / (start - min(soon, end))
    cut = int(steps[0] + early * (steps[-1] - steps[0]))
    text = f"{share:.0%} of the fall from {start:.4g} to {end:.4g} is made by step {cut} of {steps[-1]}"
    if back > 0:
        text += f", where it was {soon:.4g}"
    drop = steepest_tenth(steps, values) / (start - end)  # 1 for a straight line
    numbers = {"first": start, "soon": soon, "last": end, "share": share}
    is_shallow = share < shallow * line
    if is_shallow and drop > bent:
        text += f"; a later tenth falls {drop:.2g} times as fast as a straight line"
    is_bad = is_shallow and drop <= bent and share + hidden < steep
    word: Word = "bad" if is_bad else word_if_low(share, watch=steep, bad=-np.inf)
    return SeriesAnswer(
        word=worst_of(word, word_if_high(back, watch=MAX_GIVEN_BACK_SHARE, bad=np.inf)), sentence=text, numbers=numbers
    )


@question(
    "D2.4",
    needs=[loss_above_floor, entropy_floor, train_loss_raw],
    wants=[unigram_entropy],
    rules=(*STANDSTILL_RULES, "loss_rises", "loss_below_floor"),
)
def absorbed(
    above_floor: Series, floor: Series, loss: Series, unigram: Series | None, *, near: float = 0.05, flat: float = 0.01
) -> SeriesAnswer:
    """Is the training set mostly absorbed?

    ## Looks at
    How far the loss is above the floor that its own power law has, as a share of the whole way from its start; whether it still
    falls; and the loss of a model that knows word frequencies only.
    ## Good
    The loss is within `near` of the way: a plateau at the floor (playbook D2.4).
    ## Watch
    The loss is farther from the floor, or above the entropy of single tokens.
    ## Bad
    The loss is above that entropy and flat: it changes by less than `flat` of itself from the third to the last quarter. That is
    a plateau that is no floor. `near` and `flat` are starting values. A fit that leaves the floor open is no answer.
    """
    return against_floor(above_floor, floor, loss, unigram, near=near, flat=flat)


def against_floor(
    above_floor: Series, floor: Series, loss: Series, unigram: Series | None, *, near: float, flat: float
) -> SeriesAnswer:
    """Hold a loss against the floor that its power law has, and against word frequencies.

    Args:
        above_floor: How far the loss was above the floor, at each fit.
        floor: The floor and its standard error, at each fit.
        loss: The training loss.
        unigram: Entropy of single tokens.
        near: Share of the way from the start to the floor that is near it.
        flat: Change between the last two quarters, as a share, below which the loss is flat.
    """
    (step, left), bottom, error = points(above_floor).last, points(floor).last[1], points(floor, "error")
    values = points(loss).values
    start, stages = float(values[:3].max()), levels(values, 4)
    share = left / (start - bottom) if start > bottom else 1.0
    is_flat = abs(float(stages[-1] - stages[-2])) < flat * abs(float(stages[-2]))
    is_known = len(error.values) > 0 and int(error.steps[-1]) == step and float(error.values[-1]) < left
    if share < -near:
        below = f"at step {step} the loss lies {-left:.3g} below the floor of its power law: it does not follow one"
        return SeriesAnswer(word="not_recorded", sentence=below, missing=("a loss that falls like a power of the steps",))
    text = f"at step {step} the loss is {abs(left):.3g} {'above' if left >= 0 else 'below'} its floor of {bottom:.3g}"
    if 0 <= share <= 1:
        text += f", {share:.1%} of the way from {start:.4g}"
    text += "; it is flat" if is_flat else "; it still changes"
    numbers = {"above_floor": left, "floor": bottom, "share": share}
    if unigram is not None:
        numbers["unigram_entropy"] = points(unigram).last[1]
        text += f"; word frequencies alone give {numbers['unigram_entropy']:.3g}"
        if float(stages[-1]) > numbers["unigram_entropy"]:
            text += f", less than its last level, {stages[-1]:.4g}"
            return SeriesAnswer(word="bad" if is_flat else "watch", sentence=text, numbers=numbers)
    if abs(share) <= near or is_known:
        return SeriesAnswer(word=word_if_high(share, watch=near, bad=np.inf), sentence=text, numbers=numbers)
    short = f"{text}; the record does not tell its floor yet"
    return SeriesAnswer(word="not_recorded", sentence=short, numbers=numbers, missing=("a longer record",))


@question(
    "D2.5",
    needs=[head_kind_share],
    rules=("entropy_collapse", "uniform_heads", "mask_leak"),
    causes=("attention_scaled_down", "context_not_used"),
)
def patterns(shares: Series, *, watch: float = 0.5, bad: float = 0.9, early: int = 500) -> SeriesAnswer:
    """Does it learn patterns, or single tokens?

    ## Looks at
    What the heads follow on training batches, from their attention maps.
    ## Good
    The heads follow positions and content.
    ## Watch
    More than `watch` of the heads look everywhere alike, or at the first token only.
    ## Bad
    More than `bad` of the heads do so (playbook D2.5), from step `early` on: heads of every model start out uniform. The three
    limits are starting values. In a trained model, a head that looks at the first token is at rest.
    """
    step, row = last_row(shares)
    idle = row.get("uniform", 0.0) + row.get("first_token", 0.0)
    kinds = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in row.items() if share > 0)
    word = lenient_before(word_if_high(idle, watch=watch, bad=bad), step, early)
    return SeriesAnswer(word=word, sentence=f"at step {step} heads follow: {kinds}", numbers=row)


@question(
    "D2.6",
    needs=[relative_movement],
    wants=[moving_share, gradient_norm, FACTS],
    rules=(
        "barely_moving",
        "layer_not_contributing",
        "missing_in_optimizer",
        "frozen_parameter",
        "router_imbalance",
        "weights_jump",
        "dead_units",
        "starved_branch",
    ),
)
def layers_contribute(
    moved: Series,
    share: Series | None,
    gradient: Series | None,
    facts: Manifest | None,
    *,
    min_relative_update: float = layer_not_contributing.thresholds["min_relative_update"],
    still: float = 0.02,
    few: float = 0.5,
    nothing: float = 1e-5,
    early: int = 20,
) -> SeriesAnswer:
    """Do all layers contribute?

    ## Looks at
    How far the weights of each block have come from where they started: the median of its trainable matrices. Matrices without a
    gradient, beside others that get one, are frozen on purpose, as a LoRA's base is.
    ## Good
    Every block came at least `min_relative_update` as far as the one that came furthest (playbook D2.6; as in
    layer_not_contributing).
    ## Watch
    Some blocks did not.
    ## Bad
    A small part of the model does the work, or none does:

    - Fewer than `few` of the blocks came `still` as far as the furthest (lab: what is cut off or frozen stays below that).
    - No block has moved by `nothing` of its start after `early` steps: a hundred roundings of float32 are no training.
    - `few` and `early` are starting values.
    """
    table = table_of(facts)
    matrices = moved.only(lambda name: table.is_trainable(name) and is_matrix(table, name))
    matrices = _with_gradient(matrices, gradient, table)
    blocks = matrices.grouped(table.blocks(matrices.labels), _middle) if matrices.labels else matrices
    if len(blocks.labels) < 2 or not blocks.finite.any():
        return not_applicable("the model has fewer than two blocks")
    step, row = last_row(blocks)
    (low, value), (high, high_value) = smallest(row), largest(row)
    taking = [name for name, value in row.items() if value >= min_relative_update * high_value and value > 0]
    standing = [name for name, value in row.items() if value < still * high_value or value <= 0]
    text = (
        f"by step {step} {len(taking)} of {len(row)} blocks moved; {high} by {high_value:.3g} of its start, {low} by {value:.3g}"
    )
    numbers = {"blocks": float(len(row)), "moving": float(len(taking)), "largest": high_value, "smallest": value}
    if share is not None:
        numbers["moving_share"] = points(share).last[1]
        text += f"; {numbers['moving_share']:.0%} of all tensors moved"
    if high_value == 0:  # where the loss falls, the record of the weights stands still: MOVE001 says which it is
        return SeriesAnswer(word="watch", sentence=f"{text}: none has moved at all", numbers=numbers)
    if high_value < nothing:
        return SeriesAnswer(
            word=lenient_before("bad", step, early), sentence=f"{text}: none has moved by {nothing:.0e}", numbers=numbers
        )
    word: Word = "bad" if 1 - len(standing) / len(row) < few else "good" if len(taking) == len(row) else "watch"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


def _with_gradient(matrices: Series, gradient: Series | None, table: TensorTable) -> Series:
    """Return the matrices that had a gradient, and those of blocks in which none had one, where run.json lists them.

    Where run.json does not list its tensors, a whole block without gradients counts as frozen on purpose.
    """
    had = set(gradient.labels) if gradient is not None else set()
    trained = {table.block(name) for name in matrices.labels if name in had}
    return matrices.only(lambda name: name in had or (table.block(name) not in trained and (name in table.facts or not had)))


def _middle(values: Floats) -> Floats:
    return np.asarray(np.median(values, axis=-1))
