"""Recorded facts of a training run: optimizer kind, planned learning rate, precision, resume steps, kind of loss."""

from collections.abc import Mapping

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.contract.schema.tensor_names import is_of_policy
from ckaudit.run.column_builder import DTYPES, LOSS_FUNCTIONS
from ckaudit.run.medians import median
from ckaudit.run.robust import looks_like_a_score
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.tensors import loss_kind_of, table_of

TURNS = "optimizers take turns, each with a loss of its own: such losses play against each other, and need not fall"
POLICY_ACTS = "a policy makes the data that it learns from, and its targets: its loss need not fall"
TARGET_MOVES = "weights that are not trained move along, and with them its target"
LOOKS_LIKE_A_SCORE = "what is logged as the loss rises and levels off, as an accuracy or a reward does"
"""Why the loss curve is not judged, as for a GAN, a policy, a student whose teacher follows it, or an accuracy."""

FULL_TYPES = [DTYPES.index(name) for name in ("float32", "float64")]

CLASSIFYING = {float(LOSS_FUNCTIONS.index(name)) for name in ("cross_entropy", "nll_loss")}
"""Numbers of the loss functions that choose one of several classes."""


MIN_VOCABULARY_SHARE = 0.5
"""Smallest share of the vocabulary that a head over tokens covers; the vocabulary may also be padded."""


def takes_turns(manifest: Manifest | None) -> bool:
    """Tell whether the run is known to train two models in turns, as a GAN does; its loss then does not measure progress."""
    return manifest is not None and manifest.takes_turns is True


def counts_updates(manifest: Manifest | None) -> bool:
    """Tell whether a step is an optimizer update and not an epoch or a log entry; it is if nothing else is recorded."""
    return manifest is None or manifest.step_unit is UNSET


def has_taken_all_steps(steps: Steps, manifest: Manifest | None) -> bool:
    """Tell whether a run has taken all planned steps, so that it learns nothing more."""
    planned = manifest.planned_steps if manifest else UNSET
    return planned is not UNSET and bool(len(steps) and steps[-1] >= planned)


def is_single_process(manifest: Manifest | None) -> bool:
    """Tell whether the run has a single process, so that ranks exchange nothing."""
    return manifest is not None and manifest.world_size == 1


def may_have_taken_all_steps(steps: Steps, manifest: Manifest | None) -> bool:
    """Tell whether a run has taken all planned steps, or has no plan."""
    return has_taken_all_steps(steps, manifest) or manifest is None or manifest.planned_steps is UNSET


def is_reinforcement_learning(manifest: Manifest | None) -> bool:
    """Tell whether a model's actions generate its training data, from run.json or else from the names of its tensors."""
    if manifest is None or manifest.reinforcement_learning is not UNSET:
        return manifest is not None and manifest.reinforcement_learning is True
    return manifest.tensors is not UNSET and any(is_of_policy(name) for name in manifest.tensors)


def is_known_to_be_a_loss(manifest: Manifest | None, explained: Series | None = None) -> bool:
    """Tell whether the logged loss is known to be what the optimizer minimises, and not an accuracy or a reward.

    It is known if it is a loss over tokens, if its function was recorded, or if a trainer logs it.

    Args:
        manifest: Contents of run.json.
        explained: Share of a constant guess's loss that the model saves; known if the loss function was recorded.
    """
    is_of_tokens = loss_kind_of(manifest) == "nats_per_token"
    return explained is not None or is_of_tokens or (manifest is not None and manifest.trainer is not UNSET)


def target_moves(sizes: Series | None, manifest: Manifest | None, *, moved: float = 1e-3) -> bool:
    """Tell whether weights change that run.json lists as not trained, such as those of a teacher or of a target network.

    Args:
        sizes: Root mean square of each tensor.
        manifest: Contents of run.json.
        moved: Smallest relative change of such a tensor from the first checkpoint to the last.
    """
    if sizes is None or manifest is None or manifest.tensors is UNSET:
        return False
    known, tensors = manifest.tensors, table_of(manifest)
    still = sizes.only(lambda name: name in known and not tensors.is_trainable(name)).recorded_rows()
    if len(still.steps) < 2:
        return False
    with np.errstate(all="ignore"):
        return bool((np.abs(still.values[-1] / still.values[0] - 1) > moved).any())


def why_loss_need_not_fall(manifest: Manifest | None, sizes: Series | None = None) -> str:
    """Return why the loss curve cannot be judged, as for a GAN or a policy; an empty string if it must fall.

    Args:
        manifest: Contents of run.json.
        sizes: Root mean square of each tensor, if a moving target counts as well.
    """
    if takes_turns(manifest):
        return TURNS
    if is_reinforcement_learning(manifest):
        return POLICY_ACTS
    return TARGET_MOVES if target_moves(sizes, manifest) else ""


def why_not_judged_as_loss(manifest: Manifest | None, values: Floats, sizes: Series | None = None) -> str:
    """Return why a logged loss is not judged as one, be it that it need not fall or that it is a score; "" if it is.

    Args:
        manifest: Contents of run.json.
        values: Finite losses, in the order of steps, shape (N,).
        sizes: Root mean square of each tensor, if a moving target counts as well.
    """
    if why := why_loss_need_not_fall(manifest, sizes):
        return why
    return LOOKS_LIKE_A_SCORE if not is_known_to_be_a_loss(manifest) and looks_like_a_score(values) else ""


def infer_token_loss(
    manifest: Manifest | None, sections: Mapping[str, Series], losses: Series | None, *, tolerance: float = 0.1
) -> Manifest | None:
    """Return run.json with the loss kind that checkpoints show: a cross entropy over the rows of an embedding is a token loss.

    Where batches were recorded, each token must have a target: a target per row is a class, even if there are as many classes as
    rows of an embedding. A loss that does not choose among classes, or among fewer than half of the vocabulary, is of another
    kind.

    Args:
        manifest: Contents of run.json; a loss kind or a vocabulary in it stays.
        sections: Series by checkpoint path.
        losses: The training loss.
        tolerance: Largest relative difference between the loss and the function's value: a sum over tokens has another unit.
    """
    if manifest is None or losses is None or manifest.tensors is UNSET or manifest.loss_kind is not UNSET:
        return manifest
    classes, names, values = (sections.get(f"loss_function.{field}") for field in ("classes", "function", "value"))
    if not names or not values or not names.finite.any():
        return manifest
    ratio = at(losses, values.steps).values[:, 0] / values.values[:, 0]
    is_trained_on = np.isfinite(ratio).any() and abs(float(np.nanmedian(ratio)) - 1) <= tolerance
    count = int(median(classes.values[classes.finite])) if classes and classes.finite.any() else 0
    if not is_trained_on or not count or not set(names.values[names.finite]) <= CLASSIFYING:
        return replace(manifest, loss_kind="other") if is_trained_on and not count else manifest
    if manifest.vocabulary is not UNSET and count < MIN_VOCABULARY_SHARE * manifest.vocabulary:
        return replace(manifest, loss_kind="other")
    rows = {fact.shape[0] for fact in manifest.tensors.values() if fact.kind == "embedding" and fact.shape}
    is_of_rows = bool(sections.get("data.token_histogram")) and not sections.get("data.target_equals_input")
    if is_of_rows or count not in rows or manifest.vocabulary not in (UNSET, count):
        return manifest
    return replace(manifest, loss_kind="nats_per_token", vocabulary=count)


def infer_sessions(manifest: Manifest | None, starts: Mapping[int, int], scalars: Mapping[str, Series]) -> Manifest | None:
    """Return run.json with the sessions that log lines name, if it lists none itself.

    Each session resumes from the last step that was logged before its own first step.

    Args:
        manifest: Contents of run.json.
        starts: First logged step of each session, by session number.
        scalars: Valid scalars of the log.
    """
    if len(starts) < 2 or (manifest is not None and manifest.sessions is not UNSET):
        return manifest
    sessions = []
    for _, start in sorted(starts.items()):
        before = [series.steps[series.steps < start] for series in scalars.values()]
        last = max((int(steps[-1]) for steps in before if len(steps)), default=None)
        sessions.append(Session() if last is None else Session(resumed_from=last))
    return replace(manifest or Manifest(schema_version="ck.run.v1"), sessions=sessions)


def infer_policy(manifest: Manifest | None, sections: Mapping[str, Series], scores: Series | None) -> Manifest | None:
    """Return run.json with reinforcement learning inferred from a log: a loss beside episode returns is that of a policy.

    A loss that is recorded to choose among classes has targets of its own, as in imitation learning.

    Args:
        manifest: Contents of run.json.
        sections: Series by checkpoint path.
        scores: Scores by name.
    """
    classes = sections.get("loss_function.classes")
    if (manifest is not None and manifest.reinforcement_learning is not UNSET) or (classes and classes.finite.any()):
        return manifest
    names = () if scores is None else scores.labels
    if not any(EPISODE_RETURN.search(name) for name in names):
        return manifest
    return replace(manifest or Manifest(schema_version="ck.run.v1"), reinforcement_learning=True)


def infer_own_targets(
    manifest: Manifest | None,
    sections: Mapping[str, Series],
    *,
    min_checkpoints: int = 9,
    at_first: float = 10.0,
    later: float = 3.0,
) -> Manifest | None:
    """Return run.json with reinforcement learning inferred from targets that the model makes itself, as a value function does.

    The variance of all regression targets so far is that of the data. If it grows by `at_first` within the first third of the
    checkpoints and by `later` after that, the targets grow with training (Sutton & Barto 2018, section 6). Data that change at
    one step do not cause this, because their variance is constant before it.

    Args:
        manifest: Contents of run.json; what it already says stays.
        sections: Series by checkpoint path.
        min_checkpoints: Smallest number of checkpoints with a variance.
        at_first: Growth within the first third.
        later: Growth from there to the end.
    """
    spread, classes = sections.get("loss_function.constant_value"), sections.get("loss_function.classes")
    if manifest is None or manifest.reinforcement_learning is not UNSET or not spread or (classes and classes.finite.any()):
        return manifest
    values = spread.values[spread.finite_in(0), 0]
    third = len(values) // 3
    if len(values) < min_checkpoints or values[0] <= 0:
        return manifest
    grows = values[third] >= at_first * values[0] and values[-1] >= later * values[third]
    return replace(manifest, reinforcement_learning=True) if grows else manifest


def is_plain_descent(adapts: Series | None) -> bool:
    """Tell whether the optimizer is known to multiply the gradient by the rate alone (`optimizer_adapts` is 0 somewhere)."""
    return adapts is not None and bool((adapts.values[adapts.finite] == 0).any())


def is_adaptive(adapts: Series | None) -> bool:
    """Tell whether the optimizer is known to divide each gradient by its usual size, as Adam does."""
    return adapts is not None and bool((adapts.values[adapts.finite] == 1).any())


def planned_rate(manifest: Manifest | None, steps: Steps) -> Floats | None:
    """Return the planned learning rate at `steps`, interpolated linearly, shape (T,); None if there is no plan.

    Before the first and after the last planned step, the rate is constant.
    """
    pairs = _pairs(manifest)
    return None if pairs is None else np.interp(steps, pairs[:, 0], pairs[:, 1])


def planned_range(manifest: Manifest | None, steps: Steps) -> tuple[Floats, Floats] | None:
    """Return the lower and the higher of the two planned rates around each step, shape (T,); None if there is no plan."""
    pairs = _pairs(manifest)
    if pairs is None:
        return None
    after = np.clip(np.searchsorted(pairs[:, 0], steps, side="left"), 0, len(pairs) - 1)
    before = np.clip(np.searchsorted(pairs[:, 0], steps, side="right") - 1, 0, len(pairs) - 1)
    ends = np.stack([pairs[before, 1], pairs[after, 1]])
    return ends.min(axis=0), ends.max(axis=0)


def _pairs(manifest: Manifest | None) -> Floats | None:
    if manifest is None or manifest.planned_learning_rate is UNSET:
        return None
    pairs = [
        pair
        for pair in manifest.planned_learning_rate
        if len(pair) == 2 and all(isinstance(number, float | int) for number in pair)
    ]
    if not pairs:
        return None
    table = np.array(pairs, float)
    return np.asarray(table[np.argsort(table[:, 0], kind="stable")])


def resume_steps(manifest: Manifest | None) -> list[int]:
    """Return the step from which each later session resumes, in order; sessions that do not record it are left out.

    >>> resume_steps(None)
    []
    """
    return [int(session.resumed_from or 0) for session in later_sessions(manifest)]


def later_sessions(manifest: Manifest | None) -> list[Session]:
    """Return the sessions that resume the run and record from which step, in order."""
    if manifest is None or manifest.sessions is UNSET:
        return []
    return [session for session in manifest.sessions[1:] if session.resumed_from is not UNSET]


def is_loss_scaled(scale: Series | None) -> bool:
    """Tell whether the loss is scaled; a single-precision run logs no scale, or a constant scale of 1."""
    return scale is not None and bool((scale.values[scale.finite] > 1).any())


def is_half_precision(types: Series | None) -> bool:
    """Tell whether any weight or module output is recorded with less than 32 bits."""
    known = types.values[types.finite] if types is not None else np.empty(0)
    return bool(known.size) and not bool(np.isin(known, FULL_TYPES).all())


def is_single_precision(types: Series | None) -> bool:
    """Tell whether modules compute in single precision: the types of their outputs are recorded, and none has less than 32 bits.

    Weights of 32 bits alone do not show it, because autocast computes in half precision from them.
    """
    outputs = types.only(lambda label: label.startswith("activations/")) if types is not None else None
    known = outputs.values[outputs.finite] if outputs is not None else np.empty(0)
    return bool(known.size) and bool(np.isin(known, FULL_TYPES).all())
