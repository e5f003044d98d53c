"""All that the lab can train, or the part of it that a pattern names."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TypeVar

from msgspec import Struct

from ckaudit.errors import UsageError
from ckaudit.lab.specs import Control, Experiment, Family, Fault, controls, experiments, faults
from ckaudit.lab.training_spec import HEALTHY

MODELS: dict[Family, str] = {
    "gpt": "A GPT on text",
    "moe": "A GPT with experts in place of its MLPs",
    "llama": "A Llama of the library transformers",
    "lstm": "An LSTM on text",
    "mlp": "An MLP that tells classes of points apart",
    "cnn": "A convolutional network that tells shapes apart",
}


class Healthy(Struct, frozen=True, kw_only=True):
    """A training that nothing is changed of.

    Attributes:
        name: What it is called.
        title: A sentence that says what is trained.
        family: The kind of model.
    """

    name: str
    title: str
    family: Family


class Catalogue(Struct, frozen=True, kw_only=True):
    """What can be trained, each kind in its order."""

    faults: list[Fault]
    healthy: list[Healthy]
    controls: list[Control]
    experiments: list[Experiment]


Entry = TypeVar("Entry", Fault, Healthy, Control, Experiment)


def catalogue(only: str = "") -> Catalogue:
    """Return everything, or what matches one of several patterns.

    Args:
        only: Patterns of names, or of ids such as EXP-4, with commas between, in any case of letters; empty: all.

    Raises:
        UsageError: If nothing does.
    """
    patterns = only.lower().split(",") if only else ["*"]

    def kept(found: dict[str, Entry], words: Callable[[Entry], tuple[str, ...]] = lambda each: (each.name,)) -> list[Entry]:
        return [e for e in found.values() if any(fnmatchcase(word, pattern) for word in words(e) for pattern in patterns)]

    plain = {
        name: Healthy(name=name, title=f"{MODELS[family]}, and nothing is changed.", family=family)
        for name, family in HEALTHY.items()
    }
    found = Catalogue(
        faults=kept(faults()),
        healthy=kept(plain),
        controls=kept(controls()),
        experiments=kept(experiments(), lambda experiment: (experiment.name, experiment.id.lower())),
    )
    if not (found.faults or found.healthy or found.controls or found.experiments):
        raise UsageError(f"nothing in the lab matches {only!r}", hint="ckaudit lab list names all; * stands for any letters")
    return found
