"""Settings of a training as far as they were recorded: kind of optimizer, planned learning rate, precision, steps of resumes."""

from collections.abc import Mapping

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.contract.schema.tensor_names import is_of_policy
from ckaudit.run.column_builder import DTYPES, LOSS_FUNCTIONS
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.tensors import loss_kind_of, table_of

TURNS = "optimizers take turns, each with a loss of its own: such losses play against each other, and need not fall"
POLICY_ACTS = "a policy makes the data that it learns from, and its targets: its loss need not fall"
TARGET_MOVES = "weights that are not trained move along, and with them its target"
"""Why the course of a loss is not judged, as of a generator, a policy, or a student whose teacher follows it."""

FULL_TYPES = [DTYPES.index(name) for name in ("float32", "float64")]

CLASSIFYING = {float(LOSS_FUNCTIONS.index(name)) for name in ("cross_entropy", "nll_loss")}
"""Loss functions that choose one of several classes, in the order in which words of checkpoints are numbered."""


MIN_VOCABULARY_SHARE = 0.5
"""Share of a vocabulary that a head has at least whose classes are tokens; it may be padded, too."""


def takes_turns(manifest: Manifest | None) -> bool:
    """Tell whether the run is known to give two models their turn, as of a GAN, so that its loss is no measure of progress."""
    return manifest is not None and manifest.takes_turns is True


def counts_updates(manifest: Manifest | None) -> bool:
    """Tell whether a step is an update, as it is where nothing else is said, and no epoch or entry of a log."""
    return manifest is None or manifest.step_unit is UNSET


def has_taken_all_steps(steps: Steps, manifest: Manifest | None) -> bool:
    """Tell whether a training has taken all the steps that were planned: what it has not learnt it will not learn."""
    planned = manifest.planned_steps if manifest else UNSET
    return planned is not UNSET and bool(len(steps) and steps[-1] >= planned)


def is_single_process(manifest: Manifest | None) -> bool:
    """Tell whether a single process trains, so that nothing is exchanged between ranks."""
    return manifest is not None and manifest.world_size == 1


def may_have_taken_all_steps(steps: Steps, manifest: Manifest | None) -> bool:
    """Tell whether a training has taken all the steps that were planned, or nobody said how many there are to be."""
    return has_taken_all_steps(steps, manifest) or manifest is None or manifest.planned_steps is UNSET


def is_reinforcement_learning(manifest: Manifest | None) -> bool:
    """Tell whether what a model does makes the data that it learns from, by run.json, or else by the names of its tensors."""
    if manifest is None or manifest.reinforcement_learning is not UNSET:
        return manifest is not None and manifest.reinforcement_learning is True
    return manifest.tensors is not UNSET and any(is_of_policy(name) for name in manifest.tensors)


def is_known_to_be_a_loss(manifest: Manifest | None, explained: Series | None = None) -> bool:
    """Tell whether what is logged as the loss is known to be what the optimizer makes less of: no accuracy, and no reward.

    It is where it is one of tokens, where its function was seen, and where a trainer logs it, which knows what it minimises.

    Args:
        manifest: What run.json says.
        explained: Share of a constant guess's loss that the model saves; known where the loss function was seen.
    """
    is_of_tokens = loss_kind_of(manifest) == "nats_per_token"
    return explained is not None or is_of_tokens or (manifest is not None and manifest.trainer is not UNSET)


def target_moves(sizes: Series | None, manifest: Manifest | None, *, moved: float = 1e-3) -> bool:
    """Tell whether weights change that run.json says are not trained, as of a teacher, or of a copy that targets are made with.

    Args:
        sizes: Root mean square of each tensor.
        manifest: What run.json says.
        moved: Share of its size by which such a tensor changes from the first checkpoint to the last.
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
    """Return why the course of the loss says nothing, as of a generator or a policy; nothing where it is to fall.

    Args:
        manifest: What run.json says.
        sizes: Root mean square of each tensor, where a target that moves is to count as well.
    """
    if takes_turns(manifest):
        return TURNS
    if is_reinforcement_learning(manifest):
        return POLICY_ACTS
    return TARGET_MOVES if target_moves(sizes, manifest) else ""


def infer_token_loss(
    manifest: Manifest | None, sections: Mapping[str, Series], losses: Series | None, *, tolerance: float = 0.1
) -> Manifest | None:
    """Return run.json with what it leaves out and checkpoints show: a cross entropy among the rows of an embedding is of tokens.

    Where batches were looked at, each token has a target: one for a whole row is a class, though there be as many as digits. A
    loss that chooses none of several classes, or one among fewer than half of the vocabulary, is of something else.

    Args:
        manifest: What run.json says; a kind of loss or a vocabulary that it names stays.
        sections: Series by checkpoint path.
        losses: The training loss.
        tolerance: How far the loss may be off what the function returned: a sum over tokens is another unit.
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
    """Return run.json with the sessions that lines of the log name, where it lists none itself.

    Each goes on after the last step that was logged before its first one.

    Args:
        manifest: What run.json says.
        starts: First step of each session in the log, by its number.
        scalars: What counts of the log.
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
    """Return run.json with what it leaves out and a log shows: beside returns of episodes a loss is that of a policy.

    A loss that was seen to choose among classes has targets of its own, as where a policy imitates one.

    Args:
        manifest: What run.json says.
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
    """Return run.json with what it leaves out and checkpoints show: targets that a model makes itself, as a value function's are.

    The variance of the targets of a regression, of all batches so far, is that of the data; where it grows by `at_first` within
    the first third of the checkpoints, and by `later` after it, they grow with what is learnt (Sutton & Barto 2018, section 6).
    Data that become others at one step do not: their variance stands before it.

    Args:
        manifest: What run.json says; what it says itself stays.
        sections: Series by checkpoint path.
        min_checkpoints: Fewest that have a variance.
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
    """Return the planned learning rate at `steps`, linear between those named, shape (T,); None where there is no plan.

    Before the first and after the last step named it is theirs.
    """
    pairs = _pairs(manifest)
    return None if pairs is None else np.interp(steps, pairs[:, 0], pairs[:, 1])


def planned_range(manifest: Manifest | None, steps: Steps) -> tuple[Floats, Floats] | None:
    """Return the lower and the higher of the two planned rates around each step, shape (T,); None where there is no plan."""
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
    """Return the last step before each later session, in order of sessions; one that does not say where it began is left out.

    >>> resume_steps(None)
    []
    """
    return [int(session.resumed_from or 0) for session in later_sessions(manifest)]


def later_sessions(manifest: Manifest | None) -> list[Session]:
    """Return the sessions that took the run up again and say from which step, in order."""
    if manifest is None or manifest.sessions is UNSET:
        return []
    return [session for session in manifest.sessions[1:] if session.resumed_from is not UNSET]


def is_loss_scaled(scale: Series | None) -> bool:
    """Tell whether the loss is scaled: a run in single precision logs no scale, or one that is 1 throughout."""
    return scale is not None and bool((scale.values[scale.finite] > 1).any())


def is_half_precision(types: Series | None) -> bool:
    """Tell whether anything is recorded to have less than 32 bits: a weight, or what a module puts out."""
    known = types.values[types.finite] if types is not None else np.empty(0)
    return bool(known.size) and not bool(np.isin(known, FULL_TYPES).all())


def is_single_precision(types: Series | None) -> bool:
    """Tell whether modules computed in single precision: their outputs' types are recorded, and none has less than 32 bits.

    Weights of 32 bits alone do not say it, for autocast computes in half precision from them.
    """
    outputs = types.only(lambda label: label.startswith("activations/")) if types is not None else None
    known = outputs.values[outputs.finite] if outputs is not None else np.empty(0)
    return bool(known.size) and bool(np.isin(known, FULL_TYPES).all())
