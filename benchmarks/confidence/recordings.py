"""Recordings whose truth is known, and the causes that the audit weighs for each, in every form."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from msgspec import Struct

from benchmarks.everyday import catalogue
from benchmarks.everyday.mistakes import mistakes
from benchmarks.everyday.outcome import has_effect as changed_the_loss
from benchmarks.everyday.outcome import read_losses
from ckaudit.audit.confidence import CauseCandidate
from ckaudit.audit.diagnose import weigh_causes
from ckaudit.audit.engine import open_judged, triage_reads, triage_run
from ckaudit.causes.cause import causes
from ckaudit.lab import archive
from ckaudit.lab.cache import cached_training
from ckaudit.lab.specs import faults
from ckaudit.lab.training_spec import recipes
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.wild.forms import FORMS, Form, as_form
from ckaudit.lab.wild.pair import HEALTHY, ILL, has_effect, read_note, twin_learns

Source = Literal["everyday", "wild", "lab"]
OF_THE_MACHINE = "ckaudit.causes.systems"
"""Causes that only a clock shows: the machine that trained had other work."""


class LabelledRecording(Struct, frozen=True):
    """A recording whose truth is known.

    Attributes:
        source: Where it comes from.
        name: Its name there.
        family: Its model and task; recordings of one family are not independent.
        path: Its folder, or the archive that holds it.
        right: Causes that are true of it, or as good; none: it is healthy.
    """

    source: Source
    name: str
    family: str
    path: Path
    right: frozenset[str]


class JudgedRecording(Struct, frozen=True):
    """A recording in one form, and every cause that accounts for something in it."""

    recording: LabelledRecording
    form: Form
    candidates: tuple[CauseCandidate, ...]


def wild_recordings(cache: Path) -> Iterator[LabelledRecording]:
    """Yield the draws of wild-dev: ill ones whose fault did something, and twins that learn."""
    for draw in sorted(cache.glob("wild-dev.*.*")):
        if (pair := read_note(draw)) is None:
            continue
        if pair.is_fact or has_effect(pair, draw / ILL, draw / HEALTHY):
            right = frozenset({pair.truth, *pair.acceptable, *FAULTS[pair.fault].acceptable})
            yield LabelledRecording("wild", f"{draw.name}.{ILL}", pair.family, draw / ILL, right)
        if twin_learns(draw / HEALTHY):
            yield LabelledRecording("wild", f"{draw.name}.{HEALTHY}", pair.family, draw / HEALTHY, frozenset())


def everyday_recordings(cache: Path) -> Iterator[LabelledRecording]:
    """Yield everyday trainings: healthy ones, and mistakes that have an effect."""
    for name in catalogue.select_names(""):
        folder = catalogue.folder_of(name, 0, cache)
        if not catalogue.is_trained(folder):
            continue
        task, _, mistake = name.partition(".")
        made = mistakes()[mistake] if mistake else None
        if made is None:
            yield LabelledRecording("everyday", name, task, folder, frozenset())
        elif changed_the_loss(made, read_losses(folder), read_losses(catalogue.folder_of(task, 0, cache))):
            yield LabelledRecording("everyday", name, task, folder, frozenset(made.causes))


def lab_recordings(cache: Path) -> Iterator[LabelledRecording]:
    """Yield the trainings of the lab's split that rules may be mended by: faults, and what is healthy."""
    for recipe in recipes("dev"):
        kept = cached_training(cache, recipe)
        if not kept.usable:
            continue
        fault = faults().get(recipe.name)
        if fault is None or not fault.harmless:
            right = frozenset({fault.truth, *fault.acceptable}) if fault else frozenset[str]()
            yield LabelledRecording("lab", f"{recipe.name}.{recipe.seed}", recipe.family, kept.path, right)


def judge_in_each_form(recording: LabelledRecording) -> list[JudgedRecording]:
    """Audit a recording in every form, and return what the audit weighed."""
    with TemporaryDirectory(prefix="run-") as temporary:
        folder = recording.path
        if folder.is_file():
            folder = Path(temporary) / "recording"
            folder.mkdir()
            archive.unpack(recording.path, folder)
        written = partial(as_form, folder)
        return [JudgedRecording(recording, form, _candidates(written(form, Path(temporary) / form))) for form in FORMS]


def _candidates(path: Path) -> tuple[CauseCandidate, ...]:
    run = open_judged(path, reads=triage_reads())
    catalogue = {name: cause for name, cause in causes().items() if not cause.function.__module__.startswith(OF_THE_MACHINE)}
    weighed = weigh_causes(run, triage_run(run).findings, catalogue.values())
    return tuple(candidate for candidate, _ in weighed if candidate.is_supported)
