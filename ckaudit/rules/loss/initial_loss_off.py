"""INIT001: the first loss is not that of a model that knows nothing."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.loss import initial_loss_excess, train_loss_raw
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.reductions import running_medians
from ckaudit.metrics.speed import tokens_per_sec
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series, at
from ckaudit.run.tensors import NOT_OF_TOKENS, loss_kind_of

WHY = "head or initial weights are too large, or the loss is not a mean over tokens"


@rule(
    "INIT001",
    severity="sev1",
    needs=[train_loss_raw, FACTS],
    wants=[initial_loss_excess, tokens_per_sec, tokens_seen],
    facts=[["vocabulary"]],
    unit="nats/token",
    memory=1,
)
def initial_loss_off(
    losses: Series,
    facts: Manifest,
    excess: Series | None,
    speed: Series | None,
    tokens: Series | None,
    *,
    sev2_ratio: float = 2.0,
    sev2_excess: float = 5.0,
    overcome_share: float = 0.5,
    note_share: float = 0.03,
    max_vocabulary: int = 1_000_000,
) -> Iterator[Hit | Skip]:
    """The first loss is not that of a model that knows nothing.

    ## What it checks
    The rule compares the loss of step 0 or 1 with a uniform guess: the log of the vocabulary, or of the number of classes that
    the loss function was seen to have (playbook D1.1).

    - A first loss that is more than `sev2_ratio` times a uniform guess, and more than `sev2_excess` nats above it, is sev2. A
      head or all matrices initialized too large give 4 to 8 times as much, a sum over tokens thousands.
    - Logits of standard deviation s cost half of s squared: the five nats of `sev2_excess` are a deviation of 3.
    - Such a first loss is only a note where medians of five losses stay below the guess from `overcome_share` of the steps on, or
      from earlier on: it cost some steps, and no more.
    - For tokens, a first loss that is more than `note_share` above or below the guess is a note.
    - A first loss below zero is sev1: it is no cross entropy.
    - Where the log counts tokens and the vocabulary is unknown, a first loss above `sev2_ratio` times the log of `max_vocabulary`
      is sev2: no public vocabulary is half as large.
    ## Why it matters
    The model begins with confident wrong guesses and spends its first steps on taking them back. Or the number called the loss is
    a sum, or has the wrong sign.
    ## False alarms
    Some healthy runs begin elsewhere:

    - Weights that were trained before begin far below the log of the vocabulary, or above it on texts of another kind.
    - A new head on learnt features, or cosines times a scale with a margin, begins up to four nats above the guess.
    - Logits of deviation 1 cost half a nat more than a uniform guess: GPT2 starts 2 % above it. T5 and Mamba, whose tied
      embeddings begin at 1 or 0.1, start 20 % above it.
    - Initial weights five times larger may even help a small model.
    """
    if facts.vocabulary is UNSET and excess is None:
        yield _above_any_vocabulary(losses, sev2_ratio, max_vocabulary, counts_tokens=bool(speed or tokens))
        return
    if loss_kind_of(facts) == "other":
        yield Skip("not_applicable", NOT_OF_TOKENS)
        return
    if excess is None:
        yield Skip("not_applicable", f"the log begins at step {losses.steps[0]}: the loss of the untrained model is not in it")
        return
    step, off = int(excess.steps[-1]), float(excess.values[-1, 0])
    if not math.isfinite(off):
        return
    loss = float(at(losses, excess.steps).values[-1, 0])
    uniform = loss - off
    if loss < 0:
        yield _hit("sev1", step, loss, 0.0, "the first loss is {value:.4g}: a cross entropy is never below zero")
    elif loss > sev2_ratio * uniform and off > sev2_excess:
        below = _step_below(losses, uniform, overcome_share)
        message = "the first loss is {value:.4g}, a uniform guess costs {limit:.4g}: " + WHY
        message += f"; from step {below} on it is below that" if below is not None else ""
        yield _hit("sev2" if below is None else "note", step, loss, uniform, message)
    elif facts.vocabulary is not UNSET and abs(off) > note_share * uniform:
        side = "above" if off > 0 else "below, as of weights that were trained before,"
        yield _hit("note", step, loss, uniform, "the first loss is {value:.4g}, " + side + " the {limit:.4g} of a uniform guess")


def _above_any_vocabulary(losses: Series, ratio: float, vocabulary: int, *, counts_tokens: bool) -> Hit | Skip:
    """Judge the first loss of a model of unknown vocabulary, by a guess among more tokens than any vocabulary has."""
    first = np.flatnonzero((losses.steps <= 1) & losses.finite[:, 0])[-1:]
    loss = float(losses.values[first[0], 0]) if len(first) and counts_tokens else 0.0
    if loss <= ratio * math.log(vocabulary):
        return Skip("not_recorded", "needs vocabulary")
    message = f"the first loss is {{value:.4g}}; a uniform guess among {vocabulary:,} tokens costs {{limit:.4g}}: " + WHY
    return _hit("sev2", int(losses.steps[first[0]]), loss, math.log(vocabulary), message)


def _step_below(losses: Series, guess: float, share: float, *, width: int = 5) -> int | None:
    """Return the step from which on medians of losses stay below a guess, if that is within a share of all steps."""
    known = losses.finite[:, 0]
    if known.sum() < width:
        return None
    steps, levels = losses.steps[known][width // 2 :], running_medians(losses.values[known, 0], width)
    above = np.flatnonzero(levels >= guess)
    first = int(above[-1]) + 1 if len(above) else 0
    return int(steps[first]) if first < len(levels) and steps[first] <= share * steps[-1] else None


def _hit(severity: Severity, step: int, loss: float, limit: float, message: str) -> Hit:
    return Hit(severity=severity, where="loss", first=step, last=step, worst=step, value=loss, limit=limit, message=message)
