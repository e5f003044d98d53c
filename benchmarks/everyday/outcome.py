"""What became of a training, and what triage says of it."""

import json
import math
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct

from benchmarks.everyday.mistakes import Mistake

if TYPE_CHECKING:
    from ckaudit.lab.wild.forms import Form

LAST = 20  # steps whose median loss is the final one
SHARE = 0.05  # of the healthy fall of the loss; less is no effect
SURE = 0.7


class Losses(Struct, frozen=True):
    """Losses of a training.

    Attributes:
        first: Training loss of the first step.
        final: Median of the last steps.
        held_out: Last validation loss; NaN where there was none.
    """

    first: float
    final: float
    held_out: float


class Verdict(Struct, frozen=True):
    """What triage says of a training.

    Attributes:
        losses: Its losses.
        findings: Severity and code of each finding of sev2 or worse, sorted, each once.
        cause: The first cause, if there is one.
        confidence: How sure it is.
    """

    losses: Losses
    findings: tuple[str, ...]
    cause: str | None
    confidence: float


def read_losses(folder: Path) -> Losses:
    """Read the losses of a recorded training."""
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_text(encoding="utf-8").splitlines()]
    train = [float(line["train_loss_raw"]) for line in lines if "train_loss_raw" in line]
    held_out = [float(line["val_loss"]) for line in lines if "val_loss" in line]
    last = train[-LAST:]
    final = median(last) if all(map(math.isfinite, last)) else math.nan
    return Losses(train[0], final, held_out[-1] if held_out else math.nan)


def judge(folder: Path, form: "Form" = "recorder") -> Verdict:
    """Audit a recorded training, as it is or as it would be in another form."""
    from ckaudit.audit import triage
    from ckaudit.lab.wild.forms import as_form

    with TemporaryDirectory(prefix="run-") as temporary:
        report = triage(as_form(folder, form, Path(temporary) / "run"))
    codes = {f"{finding.severity} {finding.code}" for finding in report.findings if finding.severity != "note"}
    first = report.diagnoses[0] if report.diagnoses else None
    cause, confidence = (first.cause, first.confidence) if first else (None, 0.0)
    return Verdict(read_losses(folder), tuple(sorted(codes)), cause, confidence)


def has_effect(mistake: Mistake, ill: Losses, healthy: Losses) -> bool:
    """Tell whether a mistake made a loss worse by more than a share of what the healthy training learns.

    Of a mistake that makes the loss look better, that is an effect too. A loss that is no number is one in any case.
    """
    least = SHARE * (healthy.first - healthy.final)
    worse = [ill.held_out - healthy.held_out]
    if not mistake.other_unit or not math.isfinite(ill.final):
        worse.append(ill.final - healthy.final)
    return any(not math.isfinite(each) or each > least or (mistake.flatters and each < -least) for each in worse)


class Score(Struct, frozen=True):
    """What came of a mistake to a task.

    Attributes:
        effect: Whether it had one.
        found: Whether there is a finding of sev2 or worse.
        named: Whether the first cause is right.
        misled: Whether the first cause is wrong and sure.
        cell: The same for the table: "named", the wrong cause, "found" without any cause, or "silent"; in brackets: no effect.
    """

    effect: bool
    found: bool
    named: bool
    misled: bool
    cell: str


def score(mistake: Mistake, ill: Verdict, healthy: Verdict) -> Score:
    """Hold what triage says of an ill training against what was wrong with it."""
    named = ill.cause in mistake.causes
    effect = has_effect(mistake, ill.losses, healthy.losses)
    word = "named" if named else ill.cause or ("found" if ill.findings else "silent")
    misled = ill.cause is not None and not named and ill.confidence >= SURE
    return Score(effect, bool(ill.findings), named, misled, word if effect else f"({word})")
