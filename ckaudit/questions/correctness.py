"""Phase 1: is the machinery correct? Loss, gradients and updates in the first steps, and against a reference."""

import numpy as np

from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Word
from ckaudit.metrics.gradients import block_gradient_norm, gradient_norm
from ckaudit.metrics.loss import (
    initial_loss_excess,
    is_down_to_rounding,
    train_loss_raw,
    val_loss,
    where_unsolved,
    without_solved_steps,
)
from ckaudit.metrics.movement import updated_by_another_optimizer
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.parity import gradient_check_error, parity_loss_diff, parity_param_diff
from ckaudit.metrics.replay import replay_first_difference, replay_identical, replay_loss_diff
from ckaudit.metrics.weights import relative_movement, update_norm, update_to_weight_global, weight_rms, weight_statistics_change
from ckaudit.metrics.words import element_type
from ckaudit.questions.question import FINDINGS, SeriesAnswer, not_applicable, not_recorded, question, word_if_high, worst_of
from ckaudit.questions.values import largest, last_row, points, ratio_of_alike, row_of, smallest, uneven_list, why_no_fall
from ckaudit.questions.weight_updates import (
    answer_from_checkpoints,
    last_with_learning_rate,
    learning_rate_is_on,
    no_weight_is_updated,
    trained_tensors,
    unchanged_by_last_update,
)
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.resume.parity_broken import PARAMETERS, coarsest_type, loss_limits, parity_broken
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.run_facts import why_not_judged_as_loss
from ckaudit.run.series import Series
from ckaudit.run.tensor_groups import alike_blocks
from ckaudit.run.tensors import table_of
from ckaudit.wording import first_names

NOTE_RATIO: float = vanishing_gradient.thresholds["note_ratio"]
MAX_RATIO: float = vanishing_gradient.thresholds["max_ratio"]


@question(
    "D1.1",
    needs=[train_loss_raw],
    wants=[initial_loss_excess, FACTS, relative_movement, val_loss, weight_rms],
    rules=(
        "nonfinite_values",
        "hidden_nonfinite",
        "initial_loss_off",
        *("loss_inputs_wrong", "loss_term_not_learnt", "posterior_collapse", "discriminator_wins", "loss_not_falling"),
        "score_stands",
        "loss_frozen",
        "loss_rises",
        "target_equals_input",
        "target_misalignment",
    ),
)
def training_at_all(
    loss: Series,
    excess: Series | None,
    facts: Manifest | None,
    moved: Series | None,
    val: Series | None,
    sizes: Series | None,
    *,
    first: int = 10,
    fewest: int = 6,
    min_fall_share: float = 0.01,
    long: int = 100,
    solved: float = 0.1,
) -> SeriesAnswer:
    """Is it training at all?

    ## Looks at
    The training loss over its last `first` points against its first value (playbook D1.1), and against what a uniform guess
    costs. A third of the points counts where there are fewer; `fewest` are needed, two for each third.
    ## Good
    The loss falls by more than `min_fall_share` of itself, a starting value above the noise of most losses. A start near the log
    of the vocabulary is that of a sound model. A long warm-up may delay the fall.
    ## Watch
    - The whole of the fall lies in the first points, within `long` steps, and the record goes on for as long again. A loss below
      `solved` of its start is not meant: it has nowhere to fall.
    - The loss does not fall in fewer than `long` steps, or in a log that begins late or is too noisy to show `min_fall_share`.
    - The loss does not fall, and the log stops while evaluations go on for as long again, or a model of tokens may rest so early.
    ## Bad
    The loss stays where it was, ends higher, or is no number.
    """
    steps, values = points(loss)
    if undirected := why_not_judged_as_loss(facts, values, sizes):
        return not_applicable(undirected)
    if len(values) < fewest:
        return not_recorded(f"{len(values)} points of train_loss_raw; {fewest} are needed", "train_loss_raw")
    few = first if len(values) >= first else max(2, len(values) // 3)
    width = min(3, few)
    start, soon, end = float(values[0]), median(values[few - width : few]), median(values[-few:])
    fell, stayed = start - soon > min_fall_share * abs(start), start - end > min_fall_share * abs(start)
    text = f"the loss goes from {start:.4g} at step {steps[0]} to {end:.4g} at the end, step {steps[-1]}"
    numbers = {"first": start, "soon": soon, "last": end}
    if excess is not None:
        numbers["excess"] = points(excess).last[1]
        text += f"; it began {numbers['excess']:+.3g} from a uniform guess"
    if stayed and not fell:
        text += "; the fall begins late"
    early, on = steps[few - 1] - steps[0], steps[-1] - steps[few - 1]
    stands = stayed and soon - end <= min_fall_share * abs(start) and end > solved * start and early < long <= on
    if stands:
        text += f"; at step {steps[few - 1]} it was {soon:.4g} already, and has not fallen since"
    word: Word = "good" if stayed and not stands else "watch"
    if not stayed and (why := why_no_fall(steps, values, min_fall_share, facts, moved, val)) is not None:
        begun = "it has only begun" if steps[-1] - steps[0] < long - 1 else ""
        why = why or begun
        return SeriesAnswer(word="watch" if why else "bad", sentence=text + (f"; {why}" if why else ""), numbers=numbers)
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question(
    "D1.2",
    needs=[block_gradient_norm],
    wants=[FACTS, gradient_norm, weight_rms, train_loss_raw],
    rules=("vanishing_gradient", "dead_parameter", "zero_gradients", "starved_branch", "nonfinite_values", "hidden_nonfinite"),
)
def gradient_reaches_all(
    norm: Series,
    facts: Manifest | None,
    tensors: Series | None,
    rms: Series | None,
    loss: Series | None,
    *,
    near: float = NOTE_RATIO,
    far: float = MAX_RATIO,
) -> SeriesAnswer:
    """Does the gradient reach every layer?

    ## Looks at
    The largest over the smallest gradient norm of the blocks of each list, at the last checkpoint whose loss is not exactly zero.
    ## Good
    No norm is zero, and they lie within `near` of each other (playbook D1.2; the limits are those of vanishing_gradient).
    ## Watch
    The norms lie up to `far` apart.
    ## Bad
    A block gets no gradient, or `far` times less than another of its build, or the square of that less than one of another build.
    """
    step, row = last_row(where_unsolved(without_solved_steps(norm, loss), loss))
    if len(norm.labels) < 2 or not row:
        return not_applicable("the model has fewer than two blocks, or neither loss nor gradient")
    (low, low_value), (high, high_value) = smallest(row), largest(row)
    if low_value <= 0:
        return SeriesAnswer(
            word="bad", sentence=f"{low} gets no gradient at step {step}", numbers={"smallest": low_value, "largest": high_value}
        )
    row = uneven_list(row)
    (low, low_value), (high, high_value) = smallest(row), largest(row)
    alike = ratio_of_alike(row, norm.labels, alike_blocks(norm.labels, table_of(facts), tensors, rms))
    ratio = high_value / low_value
    word: Word = "bad" if alike > far or ratio > far**2 else word_if_high(ratio, watch=near, bad=np.inf)
    text = f"at step {step} {high} gets the largest gradient, {high_value:.3g}, and {low} the smallest, {low_value:.3g}: "
    text += f"{ratio:.3g}x apart"
    return SeriesAnswer(word=word, sentence=text, numbers={"smallest": low_value, "largest": high_value, "ratio": ratio})


@question(
    "D1.3",
    needs=[gradient_norm],
    wants=[FACTS, element_type, train_loss_raw],
    rules=("dead_parameter", "zero_gradients", "frozen_parameter", "nonfinite_values", "hidden_nonfinite"),
)
def parameter_dead(
    norm: Series,
    facts: Manifest | None,
    types: Series | None,
    loss: Series | None,
    *,
    alive: float = dead_parameter.thresholds["min_alive_norm"],
    dead: float = dead_parameter.thresholds["max_dead_norm"],
) -> SeriesAnswer:
    """Is any parameter dead?

    ## Looks at
    The gradient norm of every trainable tensor at the last two checkpoints. Biases whose gradient is zero by mathematics are left
    out, and checkpoints whose loss is exactly zero. The limits are those of dead_parameter.
    ## Good
    All tensors are above `alive` (playbook D1.3).
    ## Watch
    A tensor lies between `dead` and `alive`, or was dead once.
    ## Bad
    A tensor is below `dead`, or exactly zero, at both, while others have a gradient. An expert without a token is only watched.
    """
    norm = without_solved_steps(norm, loss)
    trainable = trained_tensors(norm, norm, facts, types)
    rows = np.flatnonzero(trainable.finite.any(axis=1))[-2:]
    if not len(rows):
        return not_applicable("no tensor is trainable")
    latest, step = row_of(trainable, int(rows[-1])), int(trainable.steps[rows[-1]])
    before = row_of(trainable, int(rows[0])) if len(rows) > 1 else {}
    now = [name for name, value in latest.items() if value < dead]
    both = [name for name in now if before.get(name, np.inf) < dead and not table_of(facts).is_expert(name)]
    faint = [name for name, value in latest.items() if value < alive]
    low, low_value = smallest(latest)
    text = f"at step {step} the smallest gradient of {len(latest)} trainable tensors is {low_value:.3g}, of {low}"
    text += f"; below {dead if now else alive:.0e} are {first_names(now or faint, 3)}" if faint else ""
    numbers = {"smallest": low_value, "tensors": float(len(latest)), "dead": float(len(now))}
    word: Word = "bad" if both and not 0 < max(latest.values()) <= alive else "watch" if faint else "good"
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question(
    "D1.4",
    wants=[parity_loss_diff, parity_param_diff, gradient_check_error, train_loss_raw, element_type],
    rules=(
        "parity_broken",
        "mask_leak",
        "target_misalignment",
        "target_equals_input",
        "gradients_carried_over",
        *("evaluated_in_training_mode", "trained_in_evaluation_mode"),
        *("loss_below_floor", "unsure_though_right"),
        *("parameter_count_changed", "embedding_not_tied"),
        "dtype_changed",
        "rank_divergence",
    ),
)
def implementation_right(
    loss: Series | None,
    parameters: Series | None,
    gradient: Series | None,
    level: Series | None,
    types: Series | None,
    *,
    loss_limit: float = parity_broken.thresholds["loss_limit"],
    param_limit: float = parity_broken.thresholds["param_limit"],
    gradient_limit: float = parity_broken.thresholds["gradient_limit"],
    factor: float = parity_broken.thresholds["note_factor"],
) -> SeriesAnswer:
    """Is the implementation correct?

    ## Looks at
    The largest differences of loss and parameters from a reference implementation on the same batches, and of gradients from
    finite differences.
    ## Good
    Losses are within `loss_limit` (above one nat, that share of the loss), parameters within `param_limit` (playbook D1.4,
    relative, in float32; a coarser type has its own), and gradients within `gradient_limit` (in float64; Press et al. 2007,
    section 5.7). All limits are those of parity_broken.
    ## Watch
    The differences are up to `factor` times as large: other orders of summation can do that.
    ## Bad
    The differences are larger: the two do not compute the same.
    """
    if loss is None and parameters is None and gradient is None:
        return not_recorded("nothing was compared with a reference", "parity_loss_diff", "parity_param_diff")
    words: list[Word] = []
    texts, numbers = [], {}
    of_parameters = max(param_limit, PARAMETERS[coarsest_type(types)])
    limits = (("losses", loss, loss_limit), ("parameters", parameters, of_parameters), ("gradients", gradient, gradient_limit))
    for what, series, plain in limits:
        if series is None:
            continue
        allowed = loss_limits(series, level, types, plain)[series.finite[:, 0]] if what == "losses" else plain
        steps, values = points(series)
        with np.errstate(over="ignore", divide="ignore"):
            over = np.abs(values) / allowed
        worst = int(np.argmax(over))
        value = float(abs(values[worst]))
        limit = value / float(over[worst]) if over[worst] else plain
        words.append(word_if_high(float(over[worst]), watch=1.0, bad=factor))
        texts.append(f"{what} differ by {value:.3g} at most, at step {steps[worst]} (limit {limit:.2g})")
        numbers[what] = value
    if words == ["good"] and gradient is None:
        return not_recorded(
            texts[0] + "; that is one half of a comparison", "parity_loss_diff" if loss is None else "parity_param_diff"
        )
    return SeriesAnswer(word=worst_of(*words), sentence="; ".join(texts), numbers=numbers)


@question(
    "D1.5",
    wants=[
        update_norm,
        update_to_weight_global,
        weight_statistics_change,
        gradient_norm,
        learning_rate,
        FINDINGS,
        FACTS,
        element_type,
        relative_movement,
        train_loss_raw,
    ],
    rules=(
        "barely_moving",
        "missing_in_optimizer",
        "frozen_parameter",
        "dead_parameter",
        "layer_not_contributing",
        "learning_rate_zero",
        "update_out_of_band",
        "skipped_updates",
        "overflow",
        "weights_jump",
        "weights_not_as_saved",
        "nonfinite_values",
        "hidden_nonfinite",
        "updates_held_back",
        "updates_rounded_away",
    ),
)
def weights_updated(
    norm: Series | None,
    relative: Series | None,
    seen: Series | None,
    gradient: Series | None,
    rate: Series | None,
    findings: Findings,
    facts: Manifest | None,
    types: Series | None,
    moved: Series | None,
    loss: Series | None,
    *,
    lowest: float = update_out_of_band.thresholds["min_ratio"],
    near: float = 0.1,
) -> SeriesAnswer:
    """Are the weights updated?

    ## Looks at
    The last update of every trainable tensor at `near` of the peak learning rate or more, beside its gradient: at the end of a
    schedule rounding leaves weights where they are, and nothing is wrong. Where updates were not recorded by tensor, that of all
    weights together; where no update was measured at all, what checkpoints show of the weights.
    ## Good
    No update is zero, and together they are at least `lowest` of the weights (the band of update_out_of_band).
    ## Watch
    All updates together are less, or a tensor is not updated: one without a gradient, or at a millionth of the first loss.
    ## Bad
    A tensor that gets a gradient is not updated (playbook D1.5), or looks the same at all checkpoints. Or the updates of all
    weights are zero at all steps after the warm-up, and the loss stands where it began. Left out are a tensor without a gradient
    at that step alone, its layer being cut off or dropped, and one in half precision whose update before was not zero.
    """
    elsewhere = updated_by_another_optimizer(norm, moved)
    norm = norm and norm.only(lambda name: name not in elsewhere)
    still, text, numbers = (
        ([], "", {})
        if norm is None
        else unchanged_by_last_update(trained_tensors(norm, gradient, facts, types), gradient, rate, near, types)
    )
    if norm is None and relative is None:
        if seen is None:
            return not_recorded("no update was measured", "update_norm", "update_to_weight_global")
        dense = trained_tensors(seen, gradient, facts, types).only(lambda name: not table_of(facts).is_expert(name))
        return answer_from_checkpoints(dense, gradient, findings)
    word: Word = "good"
    if still:
        fed = last_row(gradient)[1] if gradient is not None else {}
        starved = [name for name in still if fed.get(name) == 0]
        word = "watch" if len(starved) == len(still) or is_down_to_rounding(loss) else "bad"
    if relative is not None and (share := last_with_learning_rate(relative, rate)) is not None:
        step, value = share
        numbers["relative"] = value
        text += ("; " if text else "") + f"the update of step {step} is {value:.3g} of all weights"
        none = norm is None and no_weight_is_updated(relative, learning_rate_is_on(points(relative).steps, rate, near), findings)
        text += ", as those of all steps after the warm-up are, and the loss stands where it began" if none else ""
        word = worst_of(word, "bad" if none else "watch" if value < lowest else "good")
    if not numbers:
        return not_applicable("the learning rate is zero throughout")
    return SeriesAnswer(word=word, sentence=text, numbers=numbers)


@question(
    "D1.6", wants=[replay_identical, replay_loss_diff, replay_first_difference], rules=("replay_differs", "validation_noise")
)
def deterministic(same: Series | None, diff: Series | None, first: Series | None) -> SeriesAnswer:
    """Is it deterministic?

    ## Looks at
    The same steps, run twice from the same state: whether every bit came out the same, and how far the losses were apart.
    ## Good
    Two identical runs are identical (playbook D1.6).
    ## Bad
    They are not: something between them was not determined, such as a seed, a kernel, or the order of the data.
    """
    if same is None and diff is None:
        return not_recorded("no steps were run twice", "replay_identical")
    numbers: dict[str, float] = {}
    texts, well = [], True
    if same is not None:
        _, values = points(same)
        numbers |= {"replays": float(len(values)), "identical": float((values == 1).sum())}
        texts.append(f"{int(numbers['identical'])} of {len(values)} replays gave every bit again")
        well = numbers["identical"] == len(values)
    if diff is not None:
        numbers["loss_difference"] = float(points(diff).values.max())
        texts.append(f"losses differ by {numbers['loss_difference']:.3g} at most")
        well = well and numbers["loss_difference"] == 0
    if first is not None:
        texts.append(f"the first difference is at step {points(first).values.min():.0f}")
    return SeriesAnswer(word="good" if well else "bad", sentence="; ".join(texts), numbers=numbers)
