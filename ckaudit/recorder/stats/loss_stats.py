"""Inputs of a loss function: whether they have the form that it needs, and the cost of a constant guess on the same targets."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from ckaudit.contract.schema.loss_functions import LossFunctionStats
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.recorder.stats.arrays import is_sharded, to_float64
from ckaudit.recorder.stats.float32_rounding import shorten

Kind = Literal["classes", "binary", "squares", "alignments"]

KINDS: dict[str, Kind] = {
    "cross_entropy": "classes",
    "nll_loss": "classes",
    "binary_cross_entropy": "binary",
    "binary_cross_entropy_with_logits": "binary",
    "mse_loss": "squares",
    "l1_loss": "squares",
    "smooth_l1_loss": "squares",
    "huber_loss": "squares",
    "ctc_loss": "alignments",
}
TAKE_LOGS = ("nll_loss", "ctc_loss")
"""Functions whose rows are log-probabilities."""

LARGEST, MIN_ROWS = 2**20, 256  # outputs inspected per call, 4 MiB, and minimum number of their rows
MAX_COLUMNS = 4096  # columns up to which each one has its own mean
ONE_CLASS = 0.99  # probability from which on a target distribution counts as one class
TOLERANCE = 0.01  # of a sum of probabilities, also in half precision


class LossCall(Struct, frozen=True):
    """One call of a loss function.

    Attributes:
        function: Name in `torch.nn.functional`.
        columns: Number of classes, or of values per row.
        targets: Classes (n,) without ignored ones, probabilities (n, K), or numbers (n, D).
        losses: Losses of the inspected rows: negative log-likelihood in nats, or squared errors.
        normalized: Whether each of those rows is a distribution; None if the function takes any values.
        is_broadcast: Whether outputs and targets differ in shape, so that they are broadcast against each other.
        smoothing: Label smoothing of the call.
        is_mixed: Whether a target is a distribution over several classes.
    """

    function: str
    columns: int
    targets: Tensor
    losses: Tensor
    normalized: Tensor | None = None
    is_broadcast: bool = False
    smoothing: float = 0.0
    is_mixed: bool = False

    @property
    def kind(self) -> Kind:
        """How the loss of one row is computed."""
        return KINDS[self.function]


class TargetPool(Struct):
    """Statistics of the targets so far, from which the best constant guess follows.

    Attributes:
        kind: How the loss is computed.
        rows: Targets counted.
        means: Share of each class (K,), or mean of each number (D,).
        squares: Sum of the squared deviations from the means (D,); meaningless for classes.
    """

    kind: Kind
    rows: int
    means: Tensor
    squares: Tensor

    @classmethod
    def of(cls, call: LossCall) -> "TargetPool":
        """Return the targets of one call."""
        targets, rows = call.targets, len(call.targets)
        if call.kind == "classes" and not targets.is_floating_point():
            counts = torch.zeros(call.columns, device=targets.device)
            means = counts.index_add_(0, targets, torch.ones_like(targets, dtype=counts.dtype)) / max(rows, 1)
            return cls(call.kind, rows, means, torch.zeros_like(means))
        targets = targets.float()
        means = targets.sum(0) / max(rows, 1)
        return cls(call.kind, rows, means, (targets - means).square().sum(0))

    def merged(self, other: "TargetPool") -> "TargetPool":
        """Return both pools merged (Chan et al. 1979, equation 2.1)."""
        rows = self.rows + other.rows
        share = other.rows / max(rows, 1)
        apart = other.means - self.means
        squares = self.squares + other.squares + apart.square() * (self.rows * share)
        return TargetPool(self.kind, rows, self.means + apart * share, squares)

    def constant_loss(self) -> Tensor:
        """Return the loss of the best constant guess: the entropy of the targets, or their variance, without small-sample bias.

        An entropy from counts of m occurring classes is too small by (m - 1) / 2n (Miller 1955).
        """
        if self.kind == "squares":
            return (self.squares / (self.rows - 1)).mean()
        if self.kind == "classes":
            return _entropy_terms(self.means).sum() + ((self.means > 0).sum() - 1) / (2 * self.rows)
        both = _entropy_terms(self.means) + _entropy_terms(1 - self.means)
        return (both + (both > 0) / (2 * self.rows)).mean()


class LossTotal(Struct):
    """All calls of one loss function in one step.

    Attributes:
        function: Name of the function.
        columns: Number of classes, or of values per row.
        pool: The targets.
        rows: Number of inspected rows.
        losses: Sum of their losses.
        normalized: Number of judged rows that are distributions; None if the function takes any values.
        judged: Number of rows that were judged.
        is_broadcast: Whether outputs and targets of any call differ in shape.
        smoothing: Label smoothing of the calls.
        is_mixed: Whether a row has several classes as targets, in one call or in several.
    """

    function: str
    columns: int
    pool: TargetPool
    rows: int
    losses: Tensor
    normalized: Tensor | None
    judged: int
    is_broadcast: bool
    smoothing: float
    is_mixed: bool

    @classmethod
    def of(cls, call: LossCall) -> "LossTotal":
        """Return the totals of one call."""
        normalized, judged = (None, 0) if call.normalized is None else (call.normalized.sum(), len(call.normalized))
        pool, losses = TargetPool.of(call), to_float64(call.losses).sum()
        facts = call.is_broadcast, call.smoothing, call.is_mixed
        return cls(call.function, call.columns, pool, len(call.losses), losses, normalized, judged, *facts)

    def add(self, other: "LossTotal") -> None:
        """Add a later call."""
        self.pool = self.pool.merged(other.pool)
        self.rows, self.losses, self.judged = self.rows + other.rows, self.losses + other.losses, self.judged + other.judged
        if self.normalized is not None and other.normalized is not None:
            self.normalized = self.normalized + other.normalized
        self.is_broadcast |= other.is_broadcast
        self.is_mixed |= other.is_mixed

    def stats(self, pool: TargetPool) -> LossFunctionStats:
        """Return the section of a checkpoint; `pool` has the targets of all checkpoints, including this step."""
        stats = LossFunctionStats(function=self.function)
        if self.pool.kind != "alignments":  # whose targets are whole sequences, which are not counted
            stats.targets = self.pool.rows
        if self.pool.kind == "classes":
            stats.classes, stats.smoothing, stats.is_mixed = self.columns, self.smoothing, self.is_mixed
        if self.is_broadcast:
            stats.is_broadcast = True
            return stats
        if self.rows:
            stats.value = encode_float(shorten(float(self.losses) / self.rows))
        if self.normalized is not None and self.judged:
            stats.normalized_share = shorten(float(self.normalized) / self.judged)
        if pool.rows > 1:
            stats.constant_value = encode_float(shorten(float(pool.constant_loss())))
        if self.pool.rows > 1:
            stats.batch_constant_value = encode_float(shorten(float(self.pool.constant_loss())))
        return stats


def loss_call(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LossCall | None:
    """Return one call of a loss function of torch; None if its tensors have an unknown shape."""
    names = ("log_probs", "targets") if KINDS[function] == "alignments" else ("input", "target")
    named = dict(zip(names, args, strict=False)) | dict(kwargs)
    outputs, targets = (named.get(name) for name in names)
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or is_sharded(outputs) or not outputs.numel():
        return None
    outputs, targets = outputs.detach(), targets.detach()
    if KINDS[function] == "classes":
        smoothing = named.get("label_smoothing", args[7] if len(args) > 7 else 0.0)
        call = _of_classes(function, outputs, targets, named.get("ignore_index", args[4] if len(args) > 4 else -100))
        return None if call is None else replace(call, smoothing=float(smoothing))
    if KINDS[function] == "alignments":
        return _of_alignments(function, outputs)
    return _of_numbers(function, outputs, targets)


def _of_alignments(function: str, outputs: Tensor) -> LossCall:
    """Read log-probabilities (T, N, K) or (T, K); the target of a row depends on all rows, so rows have no losses."""
    rows = outputs.reshape(-1, outputs.shape[-1])
    rows = rows[:: -(-rows.numel() // max(LARGEST, MIN_ROWS * rows.shape[1]))].float()
    none = rows.new_zeros(0)
    return LossCall(function, rows.shape[1], none[:, None], none, _is_distribution(function, rows))


def _of_classes(function: str, outputs: Tensor, targets: Tensor, ignored: int) -> LossCall | None:
    """Read outputs of shape (K,), (N, K) or (N, K, d...), and targets that are classes or distributions over them."""
    if outputs.ndim == 1:
        outputs, targets = outputs[None], targets[None]
    classes, is_soft = outputs.shape[1], targets.is_floating_point()
    max_elements = max(LARGEST, MIN_ROWS * classes)
    step = -(-outputs.numel() // max_elements)
    rows, asked = _rows(outputs[::step]), targets[::step]
    step = -(-rows.numel() // max_elements)
    asked = (_rows(asked) if is_soft else asked.reshape(-1))[::step]
    rows = rows[::step].float()
    if not is_soft:
        is_in = _is_counted(asked, classes, ignored)
        rows, asked = rows[is_in], asked[is_in].long()
    if classes < 2 or len(rows) != len(asked):
        return None
    logs = rows if function in TAKE_LOGS else rows.log_softmax(1)
    losses = -(logs * asked).sum(1) if is_soft else -logs.gather(1, asked[:, None])[:, 0]
    all_targets = _rows(targets) if is_soft else targets.reshape(-1)
    if not is_soft:
        all_targets = all_targets[_is_counted(all_targets, classes, ignored)].long()
    is_mixed = is_soft and bool((all_targets.amax(1) < ONE_CLASS).any())
    return LossCall(function, classes, all_targets, losses, _is_distribution(function, rows), is_mixed=is_mixed)


def _is_counted(targets: Tensor, classes: int, ignored: int) -> Tensor:
    """Return which targets are valid classes and not ignored."""
    return (targets != ignored) & (targets >= 0) & (targets < classes)


def _of_numbers(function: str, outputs: Tensor, targets: Tensor) -> LossCall | None:
    """Read outputs and targets of the same shape (N, ...)."""
    if outputs.shape != targets.shape or (_is_expanded(outputs) and _is_expanded(targets)):
        pairs = torch.broadcast_shapes(outputs.shape, targets.shape).numel()  # type: ignore[no-untyped-call]
        rows, held = targets.reshape(-1, 1), [len(_stored(tensor)) for tensor in (outputs, targets)]
        return LossCall(function, 1, rows, rows.new_zeros(0), is_broadcast=True) if pairs > max(held) else None
    step = -(-outputs.numel() // LARGEST)
    outputs, targets = (tensor[::step].float() if tensor.ndim else tensor[None].float() for tensor in (outputs, targets))
    columns = targets[0].numel()
    width = columns if columns <= MAX_COLUMNS else 1
    outputs, targets = outputs.reshape(-1, width), targets.reshape(-1, width)
    if KINDS[function] == "squares":
        return LossCall(function, width, targets, (outputs - targets).square().mean(1))
    if function == "binary_cross_entropy":
        return LossCall(function, width, targets, -_log_likelihood(outputs, targets).mean(1))
    losses = torch.binary_cross_entropy_with_logits(outputs, targets).mean(1)
    return LossCall(function, width, targets, losses, ((outputs >= 0) & (outputs <= 1)).all(1))


def _is_expanded(tensor: Tensor) -> bool:
    """Return whether a tensor repeats its stored elements along a dimension."""
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _stored(tensor: Tensor) -> Tensor:
    """Return each stored element of a tensor once."""
    return tensor[tuple(slice(None) if step else 0 for step in tensor.stride())].reshape(-1)


def _log_likelihood(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each target, which torch bounds at -100."""
    log = probabilities.log().clamp(min=-100)
    return targets * log + (1 - targets) * (-probabilities).log1p().clamp(min=-100)


def _is_distribution(function: str, rows: Tensor) -> Tensor:
    """Return which rows sum to one, as probabilities or, if the function takes logs, as their exponentials."""
    if function in TAKE_LOGS:
        return rows.logsumexp(1).abs() < TOLERANCE
    return (rows >= 0).all(1) & ((rows.sum(1) - 1).abs() < TOLERANCE)


def _rows(tensor: Tensor) -> Tensor:
    """Return (N, K, d...) as rows of K."""
    return tensor if tensor.ndim == 2 else tensor.movedim(1, -1).reshape(-1, tensor.shape[1])


def _entropy_terms(shares: Tensor) -> Tensor:
    """Return each share's contribution to an entropy, in nats."""
    return -torch.xlogy(shares, shares)
