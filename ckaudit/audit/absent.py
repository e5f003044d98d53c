"""Why the Recorder measured nothing of what it measures by itself: no line brings that, and recording again does not either."""

from msgspec import UNSET

from ckaudit import __version__
from ckaudit.audit.arguments import given, says
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Entry, entries
from ckaudit.run.run import Run

RECORDER, WRITER = "ckaudit recorder ", "ckaudit writer "
EVERY = 25  # steps between two lines with the numbers of a sample
UNKNOWN = "the Recorder that wrote this run measured none in this model"


def source_of(run: Run) -> str:
    """Return what wrote a run, or what it was imported from; empty: nobody says."""
    return run.manifest.source if run.manifest and run.manifest.source is not UNSET else ""


def is_present(run: Run) -> bool:
    """Return whether the present Recorder wrote a run; earlier ones of its version left no versions of packages in run.json."""
    return source_of(run) == f"{RECORDER}{__version__}" and says(run.manifest, "environment")


def why_absent(run: Run, name: str) -> str:
    """Return why the present Recorder measured nothing of an entry though its lines were all there; empty: that is not so."""
    entry = entries()[name]
    if not is_present(run) or not _is_measured_by_itself(run, entry) or metrics()[name](run):
        return ""
    if run.last_step is not None and run.last_step < EVERY:
        return f"step {run.last_step} is the last one, and some numbers are taken every {EVERY} steps only"
    return entry.absent or UNKNOWN


def _is_measured_by_itself(run: Run, entry: Entry) -> bool:
    names = {option.partition("=")[0] for option in entry.options} | {*entry.arguments}
    plain = entry.action == "recorder" or (entry.action == "step" and "batch" in names)
    return plain and not entry.needs and names == given(run, names)
