"""The likeliest fit of confidences to recordings whose truth is known, and its prediction of families that it has not seen."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.confidence.recordings import JudgedRecording
from ckaudit.audit.confidence import MIN_CONFIDENCE, ConfidenceFit, confidences, rivals_of

FOLDS = 6


def fit_confidences(data: Sequence[JudgedRecording], *, rounds: int = 400, rounds_of_one_order: int = 25) -> ConfidenceFit:
    """Return the fit under which it is likeliest that first causes are true, or not, as they are.

    It is the first cause that a reader acts on, so those behind it do not count; which one is first depends on the fit, and is
    looked up again every few rounds.

    Args:
        data: What the audit weighed.
        rounds: Steps of the search; after two hundred the third digit stands.
        rounds_of_one_order: Steps after which the first causes are looked up again.
    """
    rows = [(each, candidate) for each in data for candidate in each.candidates]
    odds = torch.tensor([candidate.log_odds for _, candidate in rows])
    unseen = 1 - torch.tensor([candidate.recorded_share for _, candidate in rows])
    right = torch.tensor([float(candidate.cause in each.recording.right) for each, candidate in rows])
    of, by = torch.tensor(_pairs(data), dtype=torch.long).reshape(-1, 2).mT
    learnt = torch.tensor([0.0, 0.0, 1.0, 0.5, -2.0]).requires_grad_()
    search = torch.optim.Adam([learnt], lr=0.05)
    firsts = torch.arange(len(rows))
    for done in range(rounds):
        search.zero_grad()
        base, unrecorded, first, beyond, rivals = learnt
        alone = base - unrecorded * unseen + first * odds.clamp(max=1) + beyond * (odds - 1).clamp(min=0)
        taken = torch.zeros_like(alone).index_add(0, of, alone[by].exp())
        beside = alone - torch.log1p(rivals.exp() * taken)
        if done % rounds_of_one_order == 0:
            firsts = _firsts(data, beside.detach())
        binary_cross_entropy_with_logits(beside[firsts], right[firsts]).backward()
        search.step()
    base, unrecorded, first, beyond, rivals = learnt.tolist()
    return ConfidenceFit(base=base, unrecorded=unrecorded, first=first, beyond=beyond, rivals=math.exp(rivals))


def _firsts(data: Sequence[JudgedRecording], log_odds: torch.Tensor) -> torch.Tensor:
    """Return the row of the likeliest candidate of each recording that has one, in the rows of all recordings."""
    starts = np.cumsum([0, *(len(each.candidates) for each in data)])
    return torch.tensor([start + int(log_odds[start:end].argmax()) for start, end in pairwise(starts) if end > start])


def _pairs(data: Sequence[JudgedRecording]) -> list[tuple[int, int]]:
    """Return the places of each candidate and of each of its rivals, in the rows of all recordings."""
    pairs, start = [], 0
    for each in data:
        for place, candidate in enumerate(each.candidates):
            pairs += [(start + place, start + rival) for rival in rivals_of(candidate, each.candidates)]
        start += len(each.candidates)
    return pairs


def predict_left_out(data: Sequence[JudgedRecording]) -> list[list[float]]:
    """Return of each recording how likely its causes are, by a fit on other families than its own."""
    families = sorted({(each.recording.source, each.recording.family) for each in data})
    np.random.default_rng(0).shuffle(families)
    found: list[list[float]] = [[] for _ in data]
    for fold in range(FOLDS):
        out = {tuple(family) for family in families[fold::FOLDS]}
        is_out = [(each.recording.source, each.recording.family) in out for each in data]
        made = fit_confidences([each for each, left in zip(data, is_out, strict=True) if not left])
        for place in np.flatnonzero(is_out):
            found[place] = confidences(data[place].candidates, made)
    return found


def likeliest(chances: Sequence[float], *, min_confidence: float = MIN_CONFIDENCE) -> int | None:
    """Return the place of the likeliest cause; None where none is likely enough to be named."""
    best = int(np.argmax(chances)) if chances else None
    return best if best is not None and chances[best] >= min_confidence else None


def reliability_table(confidences: NDArray[np.float64], right: NDArray[np.bool_], *, bands: Sequence[float]) -> list[str]:
    """Return the lines of a table: of each band of confidence how many causes, how likely they were said to be, and were."""
    lines = ["| confidence | recordings | said | right |", "|---|---|---|---|"]
    for low, high in pairwise(bands):
        rows = (confidences >= low) & (confidences < high)
        if rows.any():
            shares = f"{confidences[rows].mean():.0%} | {right[rows].mean():.0%}"
            lines.append(f"| {low:.2g} to {min(high, 1):.2g} | {rows.sum()} | {shares} |")
    return lines
