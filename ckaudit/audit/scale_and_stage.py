"""Scale and stage of a run, estimated if neither the policy nor the user names them."""

import re
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from ckaudit.metrics.optimizer import learning_rate
from ckaudit.run.run import Run

SCALES, STAGES = ("nano", "medium", "large"), ("early", "steady", "late")
SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?) ?([kmbt])(?![a-z0-9])", re.IGNORECASE)
UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


class Estimate(NamedTuple):
    """An estimate and its reason."""

    word: str
    reason: str


def scale_of(run: Run, *, medium: float = 1e9, large: float = 2e10) -> Estimate:
    """Return the scale of a run.

    A scale named in `model_scale_hint` counts, else the number of parameters, else a number in the hint. The bounds are starting
    values: what one device trains in days, and what needs a cluster.

    Args:
        run: The run.
        medium: Number of parameters from which it is medium.
        large: Number of parameters from which it is large.
    """
    facts = run.manifest
    hint = facts.model_scale_hint if facts and facts.model_scale_hint is not UNSET else ""
    for word in SCALES:
        if word in re.split(r"[^a-z]+", hint.lower()):
            return Estimate(word, "as model_scale_hint says")
    count = float(facts.parameters) if facts and facts.parameters is not UNSET else _named(hint)
    if count is None:
        return Estimate("nano", "a guess: no parameter count is recorded; --scale nano, medium or large says it")
    word = "large" if count >= large else "medium" if count >= medium else "nano"
    return Estimate(word, f"{count:,.0f} parameters")


def stage_of(run: Run, *, early: float = 0.1, late: float = 0.8, decayed: float = 0.5) -> Estimate:
    """Return the stage of a run.

    Early is the warm-up, or the first tenth of the planned steps. Late is their last fifth or, without a plan, a learning rate
    that has fallen to half of its peak. The bounds are starting values.

    Args:
        run: The run.
        early: Share of the planned steps up to which it is early.
        late: Share from which it is late.
        decayed: Learning rate relative to its peak below which it is late.
    """
    last, facts = run.last_step, run.manifest
    if last is None:
        return Estimate("early", "nothing is recorded yet")
    warmup = facts.warmup_steps if facts else UNSET
    if warmup is not UNSET and last <= warmup:
        return Estimate("early", f"step {last} of {warmup} of warm-up")
    planned = facts.planned_steps if facts else UNSET
    if planned is not UNSET and planned > 0:
        share = last / planned
        word = "late" if share >= late else "early" if share < early else "steady"
        return Estimate(word, f"step {last} of {planned} planned")
    rates = learning_rate(run)
    known = rates.values[:, 0][rates.finite[:, 0]] if rates else np.empty(0)
    rate = float(known[-1] / known.max()) if known.size and known.max() > 0 else None
    if rate is not None and rate < decayed:
        return Estimate("late", f"the learning rate is at {rate:.0%} of its peak")
    return Estimate("steady", f"step {last}, and no plan is recorded")


def _named(hint: str) -> float | None:
    """Return the number of parameters that a hint such as "qwen3_0.6b_like" names.

    >>> _named("qwen3_0.6b_like"), _named("a small model")
    (600000000.0, None)
    """
    match = SIZE.search(hint.replace("_", " "))
    return float(match[1]) * UNITS[match[2].lower()] if match else None
