"""Evidence of gates 1 to 3: the artifacts of evaluations, the training data, and the model's behaviour."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import UNSET

from ckaudit.audit.coverage.remedies import lines_for_run
from ckaudit.audit.drop.result import Evidence, Fall, Said
from ckaudit.audit.drop.shift import ComparedNumber, ShiftLimits, compared, over_labels, shift
from ckaudit.audit.engine import triage_run
from ckaudit.metrics.attention import attn_entropy, max_attn_logit, min_normalized_entropy
from ckaudit.metrics.corpus import (
    doc_repeat_hotspots,
    filter_reject_rate,
    language_share,
    near_dup_rate,
    source_mix_share,
    train_val_overlap,
)
from ckaudit.metrics.data import token_kl_drift
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.observability import nan_inf_events
from ckaudit.metrics.probes import fixed_probe_loss, logit_entropy_probe, output_kl_to_prev
from ckaudit.metrics.routing import moe_drop_rate, moe_util_entropy
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.rules import rules
from ckaudit.run.run import Labels, Run

ARTIFACTS = "eval_artifact_hash"


def evaluation_evidence(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield the evidence on each artifact: the hash of the last good evaluation compared with later ones."""
    planned = run.manifest.eval_artifact_hashes if run.manifest else UNSET
    hashes_of_run = {} if planned is UNSET else planned
    hashes = run.words(ARTIFACTS)
    if not hashes:
        also = f", though run.json names that of {', '.join(hashes_of_run)}" if hashes_of_run else ""
        sentence = f"no evaluation logged the hash of an artifact{also}"
        yield Evidence(metric=ARTIFACTS, said="not_recorded", sentence=sentence, record=lines_for_run(run, ARTIFACTS))
    for label, words in hashes.items():
        yield _compared(run, label, words, hashes_of_run.get(label), fall)
    yield from _other_code(run, fall)
    yield from _held_out(run, fall)


def _compared(run: Run, label: str, words: Labels, planned: str | None, fall: Fall) -> Evidence:
    """Compare one artifact before and after the fall."""
    pairs = list(zip(words.steps, words.values, strict=True))
    good = next(((step, word) for step, word in reversed(pairs) if step <= fall.before), None)
    source = f"at step {good[0]}" if good else "in run.json"
    expected = good[1] if good else planned
    later = [(step, word) for step, word in pairs if step > fall.before]
    if expected is None or not later:
        side = "before" if expected is None else "after"
        sentence = f"{label}: no evaluation {side} the fall logged its hash"
        return Evidence(metric=ARTIFACTS, label=label, said="too_few", sentence=sentence, record=lines_for_run(run, ARTIFACTS))
    for step, word in later:
        if word != expected:
            sentence = f"{label}: {short_hash(expected)} {source}, {short_hash(word)} at step {step}"
            return Evidence(metric=ARTIFACTS, label=label, said="changed", sentence=sentence, step=step)
    sentence = f"{label}: {short_hash(expected)} {source}, and the same at step {later[0][0]}"
    return Evidence(metric=ARTIFACTS, label=label, said="steady", sentence=sentence)


def _other_code(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield a remark on a resume with changed training code in between: it decides nothing, but harnesses change that way."""
    sessions = run.manifest.sessions if run.manifest and run.manifest.sessions is not UNSET else []
    for earlier, later in pairwise(sessions):
        known = earlier.commit is not UNSET and later.commit is not UNSET and later.resumed_from is not UNSET
        if known and earlier.commit != later.commit and fall.before <= int(later.resumed_from or 0) < fall.after:
            sentence = (
                f"the run was resumed at step {later.resumed_from} with code {later.commit}, before it was {earlier.commit}"
            )
            yield Evidence(metric="sessions", said="remark", sentence=sentence, step=int(later.resumed_from or 0))


def _held_out(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield a remark on the held-out loss: if it does not move with the score, the score itself is doubtful."""
    loss = val_loss(run)
    change = shift(*over_labels(loss, "mean"), fall.before, fall.after, ShiftLimits(share=0.01, direction="up"))
    if change:
        moved = f"does not rise with it: {change.before:.4g} before, {change.after:.4g} after"
        if change.changed:
            moved = f"rises too, from {change.before:.4g} to {change.after:.4g}"
        elif change.after > change.before:
            moved = f"goes on as before, from {change.before:.4g} to {change.after:.4g}; expected: at most {change.limit:.4g}"
        yield Evidence(
            metric=loss.name, said="remark", sentence=f"the held-out loss {moved}", before=change.before, after=change.after
        )


def short_hash(word: str, *, letters: int = 8) -> str:
    """Return the beginning of a hash, with its algorithm.

    >>> short_hash("sha256:0a192065f5a480e6")
    'sha256:0a192065'
    """
    kind, colon, digits = word.rpartition(":")
    return f"{kind}{colon}{digits[:letters]}"


# Gates 2 and 3: the compared numbers with their limits, and the rules on internal drift.
# Starting values: no source gives limits for these. A twentieth of the mixture, two points of a percentage, a fifth of a level
# and a doubling are changes that somebody has made or let happen; the noise of the run itself counts where it is larger.
DATA = (
    ComparedNumber(metric=source_mix_share, limits=ShiftLimits(min_change=0.05), sums=True),
    ComparedNumber(metric=language_share, limits=ShiftLimits(min_change=0.05), sums=True),
    ComparedNumber(metric=filter_reject_rate, limits=ShiftLimits(min_change=2.0, share=0.2, moving=False)),
    ComparedNumber(metric=token_kl_drift, limits=ShiftLimits(min_change=0.05, share=1.0, moving=False, direction="up")),
    ComparedNumber(metric=near_dup_rate, limits=ShiftLimits(min_change=2.0, share=0.2, moving=False, direction="up")),
    ComparedNumber(metric=train_val_overlap, limits=ShiftLimits(min_change=1.0, share=0.2, moving=False)),
    ComparedNumber(
        metric=doc_repeat_hotspots, limits=ShiftLimits(min_change=2.0, share=1.0, moving=False, direction="up"), over="max"
    ),
)
DATA_CORE = ("source_mix_share", "token_kl_drift")
INTERNAL = (
    ComparedNumber(metric=max_attn_logit, limits=ShiftLimits(min_change=10.0, share=1.0, direction="up"), over="max"),
    ComparedNumber(metric=attn_entropy, limits=ShiftLimits(min_change=0.2, share=0.2), over="mean"),
    ComparedNumber(metric=min_normalized_entropy, limits=ShiftLimits(min_change=0.1, share=0.5, direction="down"), over="min"),
    ComparedNumber(metric=moe_drop_rate, limits=ShiftLimits(min_change=1.0, share=0.2, direction="up")),
    ComparedNumber(metric=moe_util_entropy, limits=ShiftLimits(min_change=0.05, share=0.1, direction="down"), over="min"),
    ComparedNumber(metric=output_kl_to_prev, limits=ShiftLimits(min_change=0.02, share=1.0, direction="up"), over="max"),
    ComparedNumber(metric=logit_entropy_probe, limits=ShiftLimits(min_change=0.1, share=0.3)),
    ComparedNumber(metric=fixed_probe_loss, limits=ShiftLimits(min_change=0.05, share=0.05, direction="up")),
    ComparedNumber(metric=grad_global_norm, limits=ShiftLimits(share=1.0, direction="up"), over="max"),
    ComparedNumber(metric=update_to_weight_global, limits=ShiftLimits(share=1.0, direction="up"), over="max"),
)
INTERNAL_CORE = ("max_attn_logit", "attn_entropy", "output_kl_to_prev", "logit_entropy_probe", "moe_drop_rate")
OF_EVALUATIONS = ("val_loss", "slice_val_loss", "train_val_gap", "rtp_toxicity_prob", "memorization_rate")
# Families of rules by the beginning of their codes: of the data; of machines, files and claims, which say nothing of the model,
# and of the score itself, which is what is to be explained.
OF_DATA = ("DATA",)
NO_REASON_PREFIXES = ("CLM", "COST", "EVAL", "FILE", "RANK001", "RANK003", "RANK004", "SYS", "VALUE")


def data_evidence(run: Run, fall: Fall, criteria: AcceptanceCriteria = OPEN) -> Iterator[Evidence]:
    """Yield the evidence on the training data, and problems of the data that began between the two evaluations."""
    for number in DATA:
        yield from compared(run, fall, number)
    yield from (illness for illness in _illnesses(run, fall, criteria) if illness.metric.startswith(OF_DATA))


def internal_evidence(run: Run, fall: Fall, criteria: AcceptanceCriteria = OPEN) -> Iterator[Evidence]:
    """Yield the evidence on the model's behaviour, and problems that began between the two evaluations."""
    for number in INTERNAL:
        yield from compared(run, fall, number)
    yield from _nonfinite(run, fall)
    yield from (illness for illness in _illnesses(run, fall, criteria) if not illness.metric.startswith(OF_DATA))


def _nonfinite(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield the evidence on NaN and infinity between the evaluations: one is enough."""
    events = nan_inf_events(run)
    inside = (events.steps > fall.before) & (events.steps <= fall.after)
    hit = events.steps[inside & (np.nan_to_num(events.values[:, 0]) > 0)].tolist() if events else []
    if hit:
        step = hit[0]
        sentence = f"{len(hit)} steps with NaN or infinity, the first is step {step}"
        yield Evidence(metric="nan_inf_events", said="changed", sentence=sentence, step=step)
    elif inside.any():
        yield Evidence(metric="nan_inf_events", said="steady", sentence="no NaN or infinity between the evaluations")


def _illnesses(run: Run, fall: Fall, criteria: AcceptanceCriteria, *, late: int = 50) -> Iterator[Evidence]:
    """Yield the findings of triage, except notes, that began after the last good evaluation.

    If the user gave the step instead of a score, a problem may show up to `late` steps later.
    """
    until = fall.after if fall.benchmark else fall.after + late
    for finding in triage_run(run, criteria=criteria).findings:
        first = finding.first_step
        counts = not finding.code.startswith(NO_REASON_PREFIXES) and finding.severity != "note"
        if counts and first is not None and fall.before < first <= until:
            # Findings of rules on evaluations show the fall itself and do not explain it.
            rule = rules().get(finding.code)
            judged = rule.metrics[: len(rule.needs)] if rule is not None else ()
            word: Said = "remark" if any(metric.name in OF_EVALUATIONS for metric in judged) else "changed"
            yield Evidence(metric=finding.code, said=word, sentence=finding.message, label=finding.where or "", step=first)
