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
from ckaudit.audit.confidence import Candidate
from ckaudit.audit.diagnose import weigh_causes
from ckaudit.audit.engine import open_judged, triage_reads, triage_run
from ckaudit.causes.cause import causes
from ckaudit.lab import archive
from ckaudit.lab.cache import look
from ckaudit.lab.specs import faults
from ckaudit.lab.training_spec import recipes
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.wild.forms import FORMS, Form, as_form
from ckaudit.lab.wild.pair import HEALTHY, ILL, has_effect, read_note, twin_learns

Source = Literal["everyday", "wild", "lab"]
OF_THE_MACHINE = "ckaudit.causes.systems"
"""Causes that only a clock shows: the machine that trained had other work."""


class Recording(Struct, frozen=True):
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


class Weighed(Struct, frozen=True):
    """A recording in one form, and every cause that accounts for something in it."""

    recording: Recording
    form: Form
    candidates: tuple[Candidate, ...]


def wild(cache: Path) -> Iterator[Recording]:
    """Yield the draws of wild-dev: ill ones whose fault did something, and twins that learn."""
    for draw in sorted(cache.glob("wild-dev.*.*")):
        if (pair := read_note(draw)) is None:
            continue
        if pair.is_fact or has_effect(draw / ILL, draw / HEALTHY):
            right = frozenset({pair.truth, *pair.acceptable, *FAULTS[pair.fault].acceptable})
            yield Recording("wild", f"{draw.name}.{ILL}", pair.family, draw / ILL, right)
        if twin_learns(draw / HEALTHY):
            yield Recording("wild", f"{draw.name}.{HEALTHY}", pair.family, draw / HEALTHY, frozenset())


def everyday(cache: Path) -> Iterator[Recording]:
    """Yield everyday trainings: healthy ones, and mistakes that have an effect."""
    for name in catalogue.select_names(""):
        folder = catalogue.folder_of(name, 0, cache)
        if not catalogue.is_trained(folder):
            continue
        task, _, mistake = name.partition(".")
        made = mistakes()[mistake] if mistake else None
        if made is None:
            yield Recording("everyday", name, task, folder, frozenset())
        elif changed_the_loss(made, read_losses(folder), read_losses(catalogue.folder_of(task, 0, cache))):
            yield Recording("everyday", name, task, folder, frozenset(made.causes))


def lab(cache: Path) -> Iterator[Recording]:
    """Yield the trainings of the lab's split that rules may be mended by: faults, and what is healthy."""
    for recipe in recipes("dev"):
        kept = look(cache, recipe)
        if not kept.usable:
            continue
        fault = faults().get(recipe.name)
        if fault is None or not fault.harmless:
            right = frozenset({fault.truth, *fault.acceptable}) if fault else frozenset[str]()
            yield Recording("lab", f"{recipe.name}.{recipe.seed}", recipe.family, kept.path, right)


def weigh(recording: Recording) -> list[Weighed]:
    """Audit a recording in every form, and return what the audit weighed."""
    with TemporaryDirectory(prefix="run-") as temporary:
        folder = recording.path
        if folder.is_file():
            folder = Path(temporary) / "recording"
            folder.mkdir()
            archive.unpack(recording.path, folder)
        written = partial(as_form, folder)
        return [Weighed(recording, form, _candidates(written(form, Path(temporary) / form))) for form in FORMS]


def _candidates(path: Path) -> tuple[Candidate, ...]:
    run = open_judged(path, reads=triage_reads())
    catalogue = {name: cause for name, cause in causes().items() if not cause.function.__module__.startswith(OF_THE_MACHINE)}
    weighed = weigh_causes(run, triage_run(run).findings, catalogue.values())
    return tuple(candidate for candidate, _ in weighed if candidate.is_supported)
