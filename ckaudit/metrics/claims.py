"""Claims: logged numbers that can be recomputed, with the bounds that raw values allow; those of losses, norms and layers."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.metrics.counters import shared_points
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.metric import Metric
from ckaudit.metrics.observability import bad_places, places_read
from ckaudit.metrics.pairs import ratio, together, total
from ckaudit.metrics.reductions import across
from ckaudit.metrics.routing import balance_losses
from ckaudit.metrics.weights import update_norm, weight_norm
from ckaudit.run.medians import median
from ckaudit.run.robust import resolution
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, at, merged_steps

PRECISION = 1e-2
"""Relative error of a number in bfloat16 (0.4 %) or with three digits (0.5 %)."""


class Bounds(Struct, frozen=True, eq=False):
    """The bounds that raw values set for a logged number.

    Attributes:
        label: Name of the number, followed by a slash and a label if it has several.
        steps: Steps at which number and bounds are known, shape (T,).
        claimed: The logged values, shape (T,).
        low: The smallest allowed values, with room for rounding and other conventions, shape (T,).
        high: The largest allowed values, shape (T,).
    """

    label: str
    steps: Steps
    claimed: Floats
    low: Floats
    high: Floats

    @property
    def nearest(self) -> Floats:
        """The allowed value nearest to the claim, shape (T,): the claim itself if it is inside the bounds."""
        return np.minimum(np.maximum(self.claimed, self.low), self.high)


ClaimFunction = Callable[[Run], Iterator[Bounds]]


class Claim(Struct, frozen=True):
    """One name whose logged values are compared with recomputed bounds.

    Attributes:
        name: Catalogue name of the number.
        reads: Inputs of the bounds.
        function: Yields the bounds.
    """

    name: str
    reads: tuple[str, ...]
    function: ClaimFunction

    @property
    def is_of_log(self) -> bool:
        """Whether a log and run.json suffice to judge it, without checkpoints."""
        others = [path for path in self.reads if path != self.name]
        return not others or any("." not in path for path in others)


CLAIMS: dict[str, Claim] = {}


def claim(name: str, *, reads: Iterable[str | Metric]) -> Callable[[ClaimFunction], ClaimFunction]:
    """Register a function as a claim.

    Args:
        name: Catalogue name of the number.
        reads: Inputs of the bounds.
    """

    def enter(function: ClaimFunction) -> ClaimFunction:
        flat = [part for read in reads for part in (read.reads if isinstance(read, Metric) else (read,))]
        CLAIMS[name] = Claim(name, tuple(dict.fromkeys([name, *flat])), function)
        return function

    return enter


def every_bound(run: Run) -> list[Bounds]:
    """Return the bounds of every logged claim that the raw values can judge, computed once per run."""
    return run.derived("claims", lambda: [bounds for claim in CLAIMS.values() for bounds in _judged(claim, run)])


def _judged(claim: Claim, run: Run) -> Iterator[Bounds]:
    """Yield the bounds of one claim without the steps that cannot be judged."""
    for bounds in claim.function(run) if run.scalar(claim.name) else ():
        known = ~(np.isnan(bounds.claimed) | np.isnan(bounds.low) | np.isnan(bounds.high))
        yield Bounds(bounds.label, bounds.steps[known], bounds.claimed[known], bounds.low[known], bounds.high[known])


def as_table(name: str, columns: list[tuple[str, Steps, Floats]]) -> Series:
    """Return columns with steps of their own as one series."""
    steps = merged_steps(*(of_claim for _, of_claim, _ in columns))
    values = np.full((len(steps), len(columns)), np.nan)
    recorded = np.zeros(values.shape, bool)
    for index, (_, mine, column) in enumerate(columns):
        rows = slice(None) if len(mine) == len(steps) else np.searchsorted(steps, mine)
        values[rows, index], recorded[rows, index] = column, True
    return Series(name, "1", steps, tuple(label for label, _, _ in columns), values, recorded)


# Claims judged by checkpoints: norms, movement, entropies and drops, against those of single tensors and layers.
@claim("grad_global_norm", reads=[gradient_norm])
def _grad_global_norm(run: Run, *, precision: float = 5e-2) -> Iterator[Bounds]:
    """The logged norm is at least the root sum of squares over the tensors of that step (F4); a norm after clipping is smaller.

    A larger norm is not a contradiction, because tensors may be missing. `precision` covers norms in bfloat16 and other summation
    orders of sharded trainers.
    """
    steps, both = shared_points([run.scalar("grad_global_norm"), total(gradient_norm(run), "x")])
    yield Bounds("grad_global_norm", steps, both[:, 0], both[:, 1] * (1 - precision), np.full(len(steps), np.inf))


@claim("update_to_weight", reads=[update_norm, weight_norm])
def _update_to_weight(run: Run, *, factor: float = 2.0) -> Iterator[Bounds]:
    """The logged ratio lies between the smallest and the largest ratio of a tensor (M11), for any choice of tensors.

    A `factor` of two covers ratios from a sample of each tensor's elements.
    """
    yield from _between(run, "update_to_weight", ratio(update_norm(run), weight_norm(run)), factor, 0.0)


@claim("attn_entropy", reads=["attention.*.entropy_per_head"])
def _attn_entropy(run: Run, *, factor: float = 1.1, nats: float = 0.05) -> Iterator[Bounds]:
    """The logged entropy lies between those of the sharpest and the flattest head (M20), for any kind of mean.

    A tenth and `nats` cover other queries of the same batch.
    """
    yield from _between(run, "attn_entropy", run.series("attention", "entropy_per_head"), factor, nats)


@claim("max_attn_logit", reads=["attention.*.max_logit_per_head"])
def _max_attn_logit(run: Run, *, factor: float = 2.0) -> Iterator[Bounds]:
    """The logged maximum is the largest logit over all heads of that step; sampled queries, or the log, may miss half of it."""
    heads = across(run.series("attention", "max_logit_per_head"), np.nanmax, "max_attn_logit", "logit")
    steps, both = shared_points([run.scalar("max_attn_logit"), heads])
    size = np.abs(both[:, 1])
    yield Bounds("max_attn_logit", steps, both[:, 0], both[:, 1] - size / factor, both[:, 1] + (factor - 1) * size)


@claim("moe_drop_rate", reads=["moe.*.dropped", "moe.*.routed"])
def _moe_drop_rate(run: Run, *, factor: float = 2.0, points: float = 1.0) -> Iterator[Bounds]:
    """The logged rate in percent lies between the smallest and the largest rate of a layer (M26), for any kind of mean.

    A `factor` and one percentage point cover means over other steps. A rate logged as a fraction lies outside if drops are
    frequent.
    """
    rates = ratio(run.series("moe", "dropped"), run.series("moe", "routed")).mapped(lambda share: 100 * share, "rate", "%")
    yield from _between(run, "moe_drop_rate", rates, factor, points)


@claim("moe_load_balance_loss", reads=["moe.*.counts", "moe.*.router_probability"])
def _moe_load_balance_loss(run: Run, *, factor: float = 1.5) -> Iterator[Bounds]:
    """The logged loss is at most that of the worst layer (M28), and at least that of the best layer or 1, whichever is smaller.

    With k experts per token, some trainers count shares of tokens instead of assignments, which gives k times as much. An expert
    has at most as many assignments as there are tokens, which bounds k. A `factor` covers means over other steps.
    """
    name, counts = "moe_load_balance_loss", run.series("moe", "counts")
    choices = counts.grouped([label.rpartition("/")[0] for label in counts.labels], _most_choices)
    losses, possible = together(balance_losses(run), choices)
    if len(run.scalar(name).labels) != 1:
        return
    raised = replace(losses, values=losses.values * possible.values, recorded=losses.recorded & possible.recorded)
    low, high = across(losses, np.nanmin, name, "1"), across(raised, np.nanmax, name, "1")
    steps, values = shared_points([run.scalar(name), low, high])
    yield Bounds(name, steps, values[:, 0], np.minimum(values[:, 1], 1.0) / factor, values[:, 2] * factor)


def _most_choices(counts: Floats) -> Floats:
    """Return the ratio of all assignments to those of the busiest expert, from shape (K, E) to (K,)."""
    with np.errstate(all="ignore"):
        return np.asarray(counts.sum(axis=-1) / counts.max(axis=-1))


@claim("nan_inf_events", reads=places_read())
def _nan_inf_events(run: Run) -> Iterator[Bounds]:
    """The logged count is at least 1 if a loss, a norm or a tensor of that step is not finite (M60)."""
    steps, both = shared_points([run.scalar("nan_inf_events"), bad_places(run)])
    yield Bounds("nan_inf_events", steps, both[:, 0], np.minimum(both[:, 1], 1.0), np.full(len(steps), np.inf))


def _between(run: Run, name: str, parts: Series, factor: float, slack: float) -> Iterator[Bounds]:
    """Compare a number with the smallest and the largest of its parts at the same step."""
    if len(run.scalar(name).labels) != 1:
        return
    low, high = (across(parts, reduce, name, "1") for reduce in (np.nanmin, np.nanmax))
    steps, values = shared_points([run.scalar(name), low, high])
    yield Bounds(name, steps, values[:, 0], values[:, 1] / factor - slack, values[:, 2] * factor + slack)


# Claims about losses: perplexities, moving average, gap and gradient noise, against the values they are computed from.
@claim("train_ppl", reads=[train_loss_raw, "train_loss_ema"])
def _train_ppl(run: Run, *, precision: float = PRECISION) -> Iterator[Bounds]:
    """The logged perplexity is exp of a recent training loss: of the raw loss, an average, or a mean over the last lines.

    Any average lies between exp of the lowest and of the highest recent loss; see recent_range. Another base of the logarithm, or
    a sum in place of a mean, does not. Losses with few digits widen the range.
    """
    steps, claimed = _column(run.scalar("train_ppl"))
    _, losses = _column(train_loss_raw(run))
    half = float(rounding(losses)[-1]) if len(losses) else 0.0
    low, high = recent_range(run, steps)
    low, high = low - half, high + half
    with np.errstate(over="ignore", invalid="ignore"):
        slack = precision * np.exp(low), precision * np.exp(high)
        yield Bounds(
            "train_ppl", steps, claimed, np.exp(low) - slack[0] - rounding(claimed), np.exp(high) + slack[1] + rounding(claimed)
        )


@claim("val_ppl", reads=[val_loss])
def _val_ppl(run: Run, *, precision: float = PRECISION, spread: float = 0.5) -> Iterator[Bounds]:
    r"""The logged perplexity is exp of the held-out loss of the same step and set (M54); a loss with few digits widens the range.

    Many loops log the mean of the perplexities of batches, which is larger (Jensen 1906): by $e^{\sigma^2/2}$ if the losses of
    batches scatter by $\sigma$ nats, which is below a `spread` of half a nat.
    """
    loss, series = val_loss(run), run.scalar("val_ppl")
    for label, column in zip(series.labels, _columns(series), strict=True):
        source = next((losses for name, losses in zip(loss.labels, _columns(loss), strict=True) if name == label), None)
        if source is None and len(loss.labels) == len(series.labels) == 1:
            (source,) = _columns(loss)
        if source is None:
            continue
        steps, both = shared_points([column, source])
        half = rounding(both[:, 1])
        with np.errstate(over="ignore"):
            low = np.exp(both[:, 1] - half) * (1 - precision)
            high = np.exp(both[:, 1] + half + spread**2 / 2) * (1 + precision)
        around = rounding(both[:, 0])
        named = label if label == "val_ppl" else f"val_ppl/{label}"
        yield Bounds(named, steps, both[:, 0], low - around, high + around)


@claim("train_loss_ema", reads=[train_loss_raw])
def _train_loss_ema(run: Run, *, beta: float = 0.999, share: float = 0.05) -> Iterator[Bounds]:
    r"""A moving average lies between the lowest and the highest loss so far, whatever its memory.

    An average that starts at 0 without bias correction may lie below the lowest loss, by as much as the largest `beta` of the
    catalogue (M04) explains: $(1 - \beta^n) \min$. If the log begins late, the average may still remember higher losses from
    before, and only the lower bound holds. A `share` of the range covers losses between the logged ones. If `run.json` names the
    memory, see `_remembered` too.
    """
    steps, claimed = _column(run.scalar("train_loss_ema"))
    loss_steps, losses = _column(train_loss_raw(run))
    lowest, highest = np.minimum.accumulate(losses), np.maximum.accumulate(losses)
    place = np.searchsorted(loss_steps, steps, side="right") - 1
    judged = place >= 0
    steps, claimed, place = steps[judged], claimed[judged], place[judged]
    bottom, highest_loss = lowest[place], highest[place]
    slack = share * (highest_loss - bottom) + PRECISION * np.abs(claimed)
    start = np.maximum(bottom, 0.0) * beta ** (place + 1.0)
    high = highest_loss + slack if len(loss_steps) and loss_steps[0] <= 1 else np.full(len(steps), np.inf)
    yield Bounds("train_loss_ema", steps, claimed, bottom - start - slack, high)
    beta_of_run = run.manifest.loss_ema_beta if run.manifest else UNSET
    if isinstance(beta_of_run, int | float) and 0 < beta_of_run < 1:
        yield from _remembered(steps, claimed, loss_steps, losses, beta=beta_of_run, share=share)


def _remembered(
    steps: Steps, floats: Floats, loss_steps: Steps, losses: Floats, *, beta: float, share: float, least_points: int = 10
) -> Iterator[Bounds]:
    r"""The average at the end of each stretch of at least one memory, from its value at the start and the losses in between.

    $$e_{t+n} = \beta^n e_t + (1-\beta^n)\,\bar L, \qquad \min L \le \bar L \le \max L, \qquad n \ge 1/(1-\beta)$$

    After five such memories a bias correction for the start at 0 no longer matters. With fewer than `least_points` losses the
    unlogged ones are not known well enough.
    """
    if min(len(loss_steps), len(steps)) < least_points:
        return
    memory = 1.0 / (1.0 - beta)
    stride = max(memory, least_points * median(np.diff(loss_steps)))
    marks = np.searchsorted(steps, np.arange(max(5 * memory, steps[0]), steps[-1] + 1, stride))
    first, last = marks[:-1], marks[1:]
    begin, end = np.searchsorted(loss_steps, steps[first], side="right"), np.searchsorted(loss_steps, steps[last], side="right")
    filled = end > begin
    if not filled.any():
        return
    first, last, begin, end = first[filled], last[filled], begin[filled], end[filled]
    edges = np.stack([begin, end], axis=1).ravel()
    padded = np.append(losses, losses[-1])
    lowest, highest = np.minimum.reduceat(padded, edges)[::2], np.maximum.reduceat(padded, edges)[::2]
    weight = beta ** (steps[last] - steps[first]).astype(float)
    slack = share * (highest - lowest) + PRECISION * np.abs(floats[last])
    low, high = (weight * floats[first] + (1 - weight) * bound for bound in (lowest, highest))
    yield Bounds("train_loss_ema", steps[last], floats[last], low - slack, high + slack)


@claim("train_val_gap", reads=[val_loss, train_loss_raw, "train_loss_ema"])
def _train_val_gap(run: Run, *, precision: float = 1e-3) -> Iterator[Bounds]:
    """The logged gap is the held-out loss minus the recent training loss (M55), for any average of it; see recent_range."""
    val = val_loss(run)
    if len(val.labels) != 1:
        return
    steps, both = shared_points([run.scalar("train_val_gap"), val])
    low, high = recent_range(run, steps)
    slack = rounding(both[:, 0]) + rounding(both[:, 1]) + precision * np.abs(both[:, 1])
    yield Bounds("train_val_gap", steps, both[:, 0], both[:, 1] - high - slack, both[:, 1] - low + slack)


@claim("grad_noise_scale", reads=["grad_noise_trace", "grad_noise_signal"])
def _grad_noise_scale(run: Run, *, precision: float = PRECISION) -> Iterator[Bounds]:
    """The logged scale is the ratio of its two parts at that step (M16), if noise does not hide the gradient.

    Few digits widen the range.
    """
    steps, columns = shared_points([run.scalar(f"grad_noise_{part}") for part in ("scale", "trace", "signal")])
    claimed, trace, signal = columns.T
    half = rounding(signal)
    low, high = np.where(signal > half, signal - half, np.nan), signal + half
    ends = np.array([(trace + sign * rounding(trace)) / bound for sign in (-1, 1) for bound in (low, high)])
    slack = precision * np.abs(claimed) + rounding(claimed)
    yield Bounds("grad_noise_scale", steps, claimed, ends.min(axis=0) - slack, ends.max(axis=0) + slack)


def recent_range(run: Run, steps: Steps, *, window: int = 50, wider: float = 0.5) -> tuple[Floats, Floats]:
    """Return the range in which any average of the recent training loss lies, at each step; NaN before the first loss.

    It covers the last `window` logged losses and the logged average, and is made `wider` by half on both sides, because steps
    between the log lines have losses too.

    Args:
        run: The run.
        steps: Shape (T,).
        window: Number of past points.
        wider: Share of the range added on each side.
    """
    loss_steps, losses = _column(train_loss_raw(run))
    place = np.searchsorted(loss_steps, steps, side="right") - 1
    ema = at(run.scalar("train_loss_ema"), steps).values
    ema = ema[:, 0] if ema.shape[1] else np.full(len(steps), np.nan)
    if not len(loss_steps):
        return ema, ema
    recent = np.lib.stride_tricks.sliding_window_view(np.concatenate((np.full(window - 1, losses[0]), losses)), window)
    low, high = np.fmin(recent.min(axis=1)[place], ema), np.fmax(recent.max(axis=1)[place], ema)
    low, high = np.where(place < 0, ema, low), np.where(place < 0, ema, high)
    with np.errstate(all="ignore"):
        return low - wider * (high - low), high + wider * (high - low)


def rounding(values: Floats) -> Floats:
    """Return half of the smallest rounding step so far of each number, shape (T,)."""
    return np.minimum.accumulate(resolution(values)) / 2 if len(values) else values


def _column(series: Series) -> tuple[Steps, Floats]:
    """Return the finite points of a series' first column."""
    steps, values = shared_points([series])
    return steps, values[:, 0]


def _columns(series: Series) -> list[Series]:
    return [series.only(lambda name, label=label: name == label) for label in series.labels]  # type: ignore[misc]
