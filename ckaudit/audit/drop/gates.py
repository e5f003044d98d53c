"""What gates 2 and 3 look at, with the limits of each number, and the rules that tell of internal drift."""

from collections.abc import Iterator

import numpy as np

from ckaudit.audit.drop.result import Evidence, Fall, Said
from ckaudit.audit.drop.shift import Limits
from ckaudit.audit.drop.shift_detectors import ComparedNumber, compared
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
from ckaudit.metrics.observability import nan_inf_events
from ckaudit.metrics.probes import fixed_probe_loss, logit_entropy_probe, output_kl_to_prev
from ckaudit.metrics.routing import moe_drop_rate, moe_util_entropy
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.rules import rules
from ckaudit.run.run import Run

# Starting values: no source gives limits for these. A twentieth of the mixture, two points of a percentage, a fifth of a level
# and a doubling are changes that somebody has made or let happen; the noise of the run itself counts where it is larger.
DATA = (
    ComparedNumber(metric=source_mix_share, limits=Limits(least=0.05), sums=True),
    ComparedNumber(metric=language_share, limits=Limits(least=0.05), sums=True),
    ComparedNumber(metric=filter_reject_rate, limits=Limits(least=2.0, share=0.2, moving=False)),
    ComparedNumber(metric=token_kl_drift, limits=Limits(least=0.05, share=1.0, moving=False, way="up")),
    ComparedNumber(metric=near_dup_rate, limits=Limits(least=2.0, share=0.2, moving=False, way="up")),
    ComparedNumber(metric=train_val_overlap, limits=Limits(least=1.0, share=0.2, moving=False)),
    ComparedNumber(metric=doc_repeat_hotspots, limits=Limits(least=2.0, share=1.0, moving=False, way="up"), over="max"),
)
DATA_CORE = ("source_mix_share", "token_kl_drift")
INTERNAL = (
    ComparedNumber(metric=max_attn_logit, limits=Limits(least=10.0, share=1.0, way="up"), over="max"),
    ComparedNumber(metric=attn_entropy, limits=Limits(least=0.2, share=0.2), over="mean"),
    ComparedNumber(metric=min_normalized_entropy, limits=Limits(least=0.1, share=0.5, way="down"), over="min"),
    ComparedNumber(metric=moe_drop_rate, limits=Limits(least=1.0, share=0.2, way="up")),
    ComparedNumber(metric=moe_util_entropy, limits=Limits(least=0.05, share=0.1, way="down"), over="min"),
    ComparedNumber(metric=output_kl_to_prev, limits=Limits(least=0.02, share=1.0, way="up"), over="max"),
    ComparedNumber(metric=logit_entropy_probe, limits=Limits(least=0.1, share=0.3)),
    ComparedNumber(metric=fixed_probe_loss, limits=Limits(least=0.05, share=0.05, way="up")),
    ComparedNumber(metric=grad_global_norm, limits=Limits(share=1.0, way="up"), over="max"),
    ComparedNumber(metric=update_to_weight_global, limits=Limits(share=1.0, way="up"), over="max"),
)
INTERNAL_CORE = ("max_attn_logit", "attn_entropy", "output_kl_to_prev", "logit_entropy_probe", "moe_drop_rate")
OF_EVALUATIONS = ("val_loss", "slice_val_loss", "train_val_gap", "rtp_toxicity_prob", "memorization_rate")
# Families of rules by the beginning of their codes: of the data; of machines, files and claims, which say nothing of the model,
# and of the score itself, which is what is to be explained.
OF_DATA = ("DATA",)
ELSEWHERE = ("CLM", "COST", "EVAL", "FILE", "RANK001", "RANK003", "RANK004", "SYS", "VALUE")


def data_evidence(run: Run, fall: Fall, gate: Gate = OPEN) -> Iterator[Evidence]:
    """Yield what the numbers on the training data say, and the illnesses of it that began between the two evaluations."""
    for number in DATA:
        yield from compared(run, fall, number)
    yield from (illness for illness in _illnesses(run, fall, gate) if illness.metric.startswith(OF_DATA))


def internal_evidence(run: Run, fall: Fall, gate: Gate = OPEN) -> Iterator[Evidence]:
    """Yield what the numbers on the model's behaviour say, and the illnesses that began between the two evaluations."""
    for number in INTERNAL:
        yield from compared(run, fall, number)
    yield from _nonfinite(run, fall)
    yield from (illness for illness in _illnesses(run, fall, gate) if not illness.metric.startswith(OF_DATA))


def _nonfinite(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield the word on NaN and infinity between the evaluations: one is enough."""
    events = nan_inf_events(run)
    inside = (events.steps > fall.before) & (events.steps <= fall.after)
    hit = events.steps[inside & (np.nan_to_num(events.values[:, 0]) > 0)].tolist() if events else []
    if hit:
        step = hit[0]
        sentence = f"{len(hit)} steps with NaN or infinity, the first is step {step}"
        yield Evidence(metric="nan_inf_events", said="changed", sentence=sentence, step=step)
    elif inside.any():
        yield Evidence(metric="nan_inf_events", said="steady", sentence="no NaN or infinity between the evaluations")


def _illnesses(run: Run, fall: Fall, gate: Gate, *, late: int = 50) -> Iterator[Evidence]:
    """Yield the findings of triage that are more than notes and began after the last good evaluation.

    Where a user said since when, and no score, an illness may be seen up to `late` steps later.
    """
    until = fall.after if fall.benchmark else fall.after + late
    for finding in triage_run(run, gate=gate).findings:
        first = finding.first_step
        grave = not finding.code.startswith(ELSEWHERE) and finding.severity != "note"
        if grave and first is not None and fall.before < first <= until:
            said: Said = "remark" if _is_of_evaluations(finding.code) else "changed"
            yield Evidence(metric=finding.code, said=said, sentence=finding.message, label=finding.where or "", step=first)


def _is_of_evaluations(code: str) -> bool:
    """Tell whether a rule judges evaluations: what it finds is another side of the fall and no reason for it."""
    rule = rules().get(code)
    return rule is not None and any(metric.name in OF_EVALUATIONS for metric in rule.metrics[: len(rule.needs)])
