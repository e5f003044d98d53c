"""What wrote a run, and whose loop trained it."""

from msgspec import UNSET

from ckaudit.metrics.catalogue import Trainer
from ckaudit.run.run import Run

HUGGING_FACE = "Hugging Face"
TRAINER_ARGUMENT = "per_device_train_batch_size"  # only the Trainer's arguments have it


def source_of(run: Run) -> str:
    """Return what wrote a run, or what it was imported from; empty: nobody says."""
    return run.manifest.source if run.manifest and run.manifest.source is not UNSET else ""


def trainer_of(run: Run) -> Trainer:
    """Return which trainer ran the loop, whose users tell a callback and no recorder; empty: none that is known."""
    facts = run.manifest
    if facts is not None and facts.trainer == "lightning":
        return "lightning"
    config = facts.config if facts and facts.config is not UNSET else {}
    told = facts is not None and facts.trainer == "huggingface"
    return "huggingface" if told or source_of(run).startswith(HUGGING_FACE) or TRAINER_ARGUMENT in config else ""
