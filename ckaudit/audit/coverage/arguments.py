"""What only whoever trains can tell the recorder: facts of the run, and the batch, each an argument of one of its calls."""

from collections.abc import Iterable, Mapping

from msgspec import UNSET, Struct

from ckaudit.audit.coverage.writer import trainer_of
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Condition
from ckaudit.run.run import Run


class Argument(Struct, frozen=True, kw_only=True):
    """One argument that a check waits for by its own name.

    Attributes:
        action: Whose line takes it.
        option: As it stands in that line.
        said: What it is, for someone who has to fill it in; empty: the option says it.
        only_with: What a run must have for it to make sense.
    """

    action: str
    option: str
    said: str = ""
    only_with: Condition = ""


ARGUMENTS: Mapping[str, Argument] = {
    "vocabulary": Argument(
        action="recorder", option="vocabulary=...", said="vocabulary, how many different tokens there are", only_with="text"
    ),
    "sequence_length": Argument(
        action="recorder", option="sequence_length=...", said="sequence_length, how many tokens a row has", only_with="text"
    ),
    "warmup_steps": Argument(
        action="recorder", option="warmup_steps=...", said="warmup_steps, 0 where the learning rate does not warm up"
    ),
    "planned_steps": Argument(action="recorder", option="planned_steps=...", said="planned_steps, where the run is to end"),
    "planned_learning_rate": Argument(action="recorder", option="planned_learning_rate=[[1, ...], ...]"),
    "batch": Argument(action="step", option="batch=(inputs, targets)"),
}
OF_CALLBACKS = {"batch_of": "batch_of, a function that takes inputs and targets, as the loss sees them, from a batch"}
OF_TARGETS = ("target_shift_match", "target_equals_input")
OF_BATCHES = ("batch_duplicate_share", "target_shift_match", "batch_repeat_distance", "token_kl_drift")


def says(facts: Manifest | None, name: str) -> bool:
    """Return whether run.json says something of that name."""
    value = getattr(facts, name, UNSET)
    return value is not UNSET and value != []


def given(run: Run, options: Iterable[str]) -> frozenset[str]:
    """Return the names of those options that the lines of a recorded run had already."""
    names = {option.partition("=")[0] for option in options}
    return frozenset(name for name in names if _is_given(run, name))


def explained(options: Iterable[str]) -> str:
    """Return what some options are, as a sentence; empty: they say it themselves.

    >>> explained(["vocabulary=...", "peak_flops=..."])
    'To fill in: vocabulary, how many different tokens there are.'
    """
    names = [option.partition("=")[0] for option in options]
    words = {name: argument.said for name, argument in ARGUMENTS.items()} | OF_CALLBACKS
    said = "; ".join(words[name] for name in names if words.get(name))
    return f"To fill in: {said}." if said else ""


def _is_given(run: Run, name: str) -> bool:
    if name == "batch":
        if trainer_of(run) == "lightning":  # its callback takes the inputs by itself, and is told of the targets
            return any(metrics()[target](run) for target in OF_TARGETS)
        return any(metrics()[batch](run) for batch in OF_BATCHES) or bool(run.value("data.token_histogram"))
    if name == "optimizer":
        return bool(metrics()["learning_rate"](run))
    if name == "tokens_seen":
        return bool(run.scalar(name))
    return says(run.manifest, name)
