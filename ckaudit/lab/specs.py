"""The catalogue of the lab: faults with their truth, healthy controls, and the experiments of the curriculum."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from ckaudit.catalogue import Catalogue
from ckaudit.lab.change import Change
from ckaudit.lab.labels import SYMPTOMS, TRUTHS

Family = Literal["gpt", "moe", "llama", "lstm", "mlp", "cnn"]
Group = Literal["optimization", "code", "initialization", "model", "data", "numerics", "resume", "system", "records"]


class FaultStrength(Struct, frozen=True):
    """How a change is made in one split: its onset and strength."""

    onset: int = 0
    strength: float = 1.0


class Fault(Struct, frozen=True, kw_only=True):
    """One fault.

    Attributes:
        name: Name of its class, in words_with_underscores.
        title: The docstring's first sentence.
        story: The whole docstring: how it is injected and what it should show.
        change: Makes the fault.
        group: Kind of the mistake.
        truth: The cause, one of `TRUTHS`.
        acceptable: At most two other causes that a good engineer might name.
        symptoms: Rules, of `SYMPTOMS`, one of which must find it at or after the onset.
        consequences: Further rules that may find its consequences.
        place: Patterns of tensors, modules or layers, one of which must be named; empty: there is no place.
        dev: How it is made in the runs for tuning thresholds.
        test: How it is made in the runs for scoring only.
        detectable: Steps after the onset from which on it is detectable.
        family: The kind of model.
        harmless: Whether it is harmless, so that it deserves only a note.
    """

    name: str
    title: str
    story: str
    change: type[Change]
    group: Group
    truth: str
    acceptable: tuple[str, ...]
    symptoms: tuple[str, ...]
    consequences: tuple[str, ...]
    place: tuple[str, ...]
    dev: FaultStrength
    test: FaultStrength
    detectable: int
    family: Family
    harmless: bool


class Control(Struct, frozen=True, kw_only=True):
    """A healthy training that looks ill.

    Attributes:
        name: Name of its class, in words_with_underscores.
        title: The docstring's first sentence.
        story: The whole docstring: what makes it look ill, and why it is not.
        change: Makes the control.
        family: The kind of model.
        expected: Rules that may rightly have findings here.
    """

    name: str
    title: str
    story: str
    change: type[Change]
    family: Family
    expected: tuple[str, ...]


class Experiment(Struct, frozen=True, kw_only=True):
    """One experiment of the curriculum: a few trainings that differ in one thing, and the metrics to compare.

    Attributes:
        name: Name of the experiment.
        id: EXP-1 to EXP-12.
        title: The docstring's first sentence.
        story: The whole docstring.
        arms: Name of each training and the change that makes it.
        look: Metrics that its page compares, each alone or with a pattern of its labels, as in gradient_norm/blocks.1.*.
        steps: Steps at which they are compared.
        family: The kind of model.
    """

    name: str
    id: str
    title: str
    story: str
    arms: Mapping[str, Change]
    look: tuple[str, ...]
    steps: tuple[int, ...]
    family: Family


_FAULTS: Catalogue[Fault] = Catalogue("fault", "ckaudit.lab.faults")
_CONTROLS: Catalogue[Control] = Catalogue("control", "ckaudit.lab.controls")
_EXPERIMENTS: Catalogue[Experiment] = Catalogue("experiment", "ckaudit.lab.experiments")


def fault(
    name: str,
    *,
    group: Group,
    truth: str,
    symptoms: tuple[str, ...],
    acceptable: tuple[str, ...] = (),
    consequences: tuple[str, ...] = (),
    place: tuple[str, ...] = (),
    dev: FaultStrength = FaultStrength(),  # noqa: B008  it is frozen
    test: FaultStrength = FaultStrength(),  # noqa: B008
    detectable: int = 10,
    family: Family = "gpt",
    harmless: bool = False,
) -> Callable[[type[Change]], type[Change]]:
    """Add a change to the catalogue of faults under a name; see `Fault` for the arguments."""
    _check_words(truth, acceptable, symptoms + consequences)

    def enter(change: type[Change]) -> type[Change]:
        title, story = _read(change)
        entry = Fault(
            name=name,
            title=title,
            story=story,
            change=change,
            group=group,
            truth=truth,
            acceptable=acceptable,
            symptoms=symptoms,
            consequences=consequences,
            place=place,
            dev=dev,
            test=test,
            detectable=detectable,
            family=family,
            harmless=harmless,
        )
        _FAULTS.add(name, entry)
        return change

    return enter


def control(name: str, *, family: Family = "gpt", expected: tuple[str, ...] = ()) -> Callable[[type[Change]], type[Change]]:
    """Add a change to the catalogue of healthy trainings that look ill under a name; see `Control`."""
    _check_words(None, (), expected)

    def enter(change: type[Change]) -> type[Change]:
        title, story = _read(change)
        _CONTROLS.add(name, Control(name=name, title=title, story=story, change=change, family=family, expected=expected))
        return change

    return enter


def experiment(
    id: str,  # noqa: A002  the mission's word
    *,
    look: tuple[str, ...],
    steps: tuple[int, ...] = (1, 10, 30, 50, 100, 125),
    family: Family = "gpt",
) -> Callable[[Callable[[], Mapping[str, Change]]], Experiment]:
    """Add a function that returns the arms of an experiment to the curriculum; see `Experiment`."""

    def enter(arms: Callable[[], Mapping[str, Change]]) -> Experiment:
        title, story = _read(arms)
        entry = Experiment(
            name=arms.__name__, id=id, title=title, story=story, arms=arms(), look=look, steps=steps, family=family
        )
        return _EXPERIMENTS.add(entry.name, entry)

    return enter


def faults() -> dict[str, Fault]:
    """Return every fault by name, sorted."""
    return _FAULTS.units()


def controls() -> dict[str, Control]:
    """Return every control by name, sorted."""
    return _CONTROLS.units()


def experiments() -> dict[str, Experiment]:
    """Return every experiment by name, in the order of the curriculum."""
    return dict(sorted(_EXPERIMENTS.units().items(), key=lambda item: int(item[1].id.removeprefix("EXP-"))))


def _read(thing: Any) -> tuple[str, str]:
    from inspect import cleandoc

    story = cleandoc(thing.__doc__ or "")
    return story.partition("\n")[0], story


def _check_words(truth: str | None, acceptable: tuple[str, ...], rules: tuple[str, ...]) -> None:
    causes = acceptable if truth is None else (truth, *acceptable)
    if unknown := [cause for cause in causes if cause not in TRUTHS] + [rule for rule in rules if rule not in SYMPTOMS]:
        raise ValueError(f"{', '.join(unknown)}: not among the truths and symptoms of the lab")
    if len(acceptable) > 2:
        raise ValueError("at most two other causes are acceptable")
