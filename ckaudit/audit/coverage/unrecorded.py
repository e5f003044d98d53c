"""Why the Recorder measured nothing of what it measures by itself: no line brings that, and recording again does not either."""

from ckaudit import __version__
from ckaudit.audit.coverage.arguments import given, says
from ckaudit.audit.coverage.writer import source_of, trainer_of
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Entry, entries
from ckaudit.run.run import Run

RECORDER, WRITER = "ckaudit recorder ", "ckaudit writer "
EVERY = 25  # steps between two lines with the numbers of a sample
UNKNOWN = "the Recorder that wrote this run measured none in this model"


def is_present(run: Run) -> bool:
    """Return whether the present Recorder wrote a run; earlier ones of its version left no versions of packages in run.json."""
    return source_of(run) == f"{RECORDER}{__version__}" and says(run.manifest, "environment")


def why_absent(run: Run, name: str) -> str:
    """Return why the present Recorder measured nothing of an entry though its lines were all there; empty: that is not so."""
    if not _is_in_vain(run, name) or line_instead(run, name):
        return ""
    if _is_short(run):
        return f"step {run.last_step} is the last one, and some numbers are taken every {EVERY} steps only"
    return entries()[name].absent or UNKNOWN


def line_instead(run: Run, name: str) -> str:
    """Return the entry whose line says a number where its own line does not bring it; empty: that is not so, or none does.

    A module of Lightning may leave out the forward pass of its own that shows the Recorder the tokens of a step.
    """
    other = entries()[name].otherwise
    if not other or metrics()[name](run) or metrics()[other](run):
        return ""
    in_vain = _is_in_vain(run, name) and not _is_short(run)
    return other if in_vain or (trainer_of(run) == "lightning" and not entries()[name].together) else ""


def _is_in_vain(run: Run, name: str) -> bool:
    return is_present(run) and _is_measured_by_itself(run, entries()[name]) and not metrics()[name](run)


def _is_short(run: Run) -> bool:
    return run.last_step is not None and run.last_step < EVERY


def _is_measured_by_itself(run: Run, entry: Entry) -> bool:
    names = {option.partition("=")[0] for option in entry.options} | {*entry.arguments}
    plain = entry.action == "recorder" or (entry.action == "step" and "batch" in names)
    return plain and not entry.needs and names == given(run, names)
