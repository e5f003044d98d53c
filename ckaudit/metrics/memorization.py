"""Memorization: how well fixed training and held-out probes are continued, and what is forgotten again."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.probes import HELD_OUT, TRAIN, groups_of, probe_accuracy, probe_perplexity
from ckaudit.metrics.reductions import across
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, empty, mean_of_labels, single

STAGES = (0.05, 0.3, 0.7, 0.9)
"""Shares of tokens continued exactly at which the playbook's stages 1 to 4 begin."""


@metric(
    unit="1",
    reads=["probes.*.overlap", "probes.*.held_out", "probe_overlap"],
    source="playbook, memorization protocol MP-2",
    memory=1,
)
def probe_overlap(run: Run) -> Series:
    r"""Share of the true tokens of a probe that occur in its continuation at any position.

    $$o_g = \tfrac{1}{|g|} \sum_{p \in g} o_p$$

    Shape (C, 2): "train" and "held_out", as in probe_accuracy. High overlap without exact match shows a known topic, not a known
    text. If there are no probes, the logged values of this name and these labels count.
    """
    overlap = run.series("probes", "overlap")
    return overlap.grouped(groups_of(run, overlap.labels), mean_of_labels) if overlap else run.scalar("probe_overlap")


@metric(unit="1", reads=[probe_perplexity, "probes.*.held_out"], source="playbook D2.2 and MP-2", memory=1)
def probe_group_perplexity(run: Run) -> Series:
    r"""Perplexity over the training probes and over the held-out ones; memorised text approaches 1.

    $$\exp\!\big(\tfrac{1}{|g|} \sum_{p \in g} \log \mathrm{ppl}_p\big)$$

    Shape (C, 2): "train" and "held_out", as in probe_accuracy.
    """
    known = probe_perplexity(run)
    return known.grouped(groups_of(run, known.labels), _geometric_mean) if known else empty("probe_group_perplexity")


@metric(unit="%", reads=[probe_accuracy], source="playbook, memorization protocol MP-3", memory=1)
def memorization_curve(run: Run) -> Series:
    r"""Share of the tokens of training probes that the model continues exactly.

    $$100 \cdot a_{train}$$

    Shape (C, 1). The playbook's curve: about 0 untrained, 5 to 15 at step 100, 30 to 50 at 500, 70 to 90 at 2,000, more from
    5,000 on.
    """
    return _column(probe_accuracy(run), TRAIN, "memorization_curve").mapped(lambda share: 100 * share, "memorization_curve", "%")


@metric(unit="stage", reads=[probe_accuracy], source="playbook, curve rows MPC-1 to MPC-5", memory=1)
def memorization_stage(run: Run) -> Series:
    r"""Stage of memorization: 0 untrained, 1 token statistics, 2 patterns, 3 strong, 4 mostly memorised.

    $$|\{b : a_{train} \ge b\}|, \qquad b \in \{5, 30, 70, 90\}\,\%$$

    Shape (C, 1). The playbook's ranges, with their gaps closed; NaN if the accuracy is.
    """
    share = _column(probe_accuracy(run), TRAIN, "memorization_stage")
    stage = np.searchsorted(STAGES, np.nan_to_num(share.values), side="right").astype(float)
    return replace(share, values=np.where(np.isnan(share.values), np.nan, stage))


@metric(unit="1", reads=[probe_accuracy], source="playbook, memorization protocol MP-4", memory=1)
def memorization_gap(run: Run) -> Series:
    r"""Accuracy on training probes minus that on held-out ones: 0 if everything generalises.

    $$a_{train} - a_{held\,out}$$

    Shape (C, 1). Not recorded unless both are.
    """
    accuracy = probe_accuracy(run)
    seen, unseen = (_column(accuracy, group, "memorization_gap") for group in (TRAIN, HELD_OUT))
    if not seen.labels or not unseen.labels:
        return empty("memorization_gap")
    recorded = seen.recorded & unseen.recorded
    return replace(seen, values=np.where(recorded, seen.values - unseen.values, np.nan), recorded=recorded)


@metric(unit="1", reads=[probe_perplexity], source="playbook D5.5; McCloskey & Cohen 1989")
def forgetting(run: Run) -> Series:
    r"""Perplexity of each probe relative to its lowest so far: 1 at its best, more if it is forgotten again.

    $$\mathrm{ppl}_t / \min_{s \le t} \mathrm{ppl}_s$$

    Shape (C, P): checkpoints by probes. NaN if the perplexity is not finite.
    """
    known = probe_perplexity(run)
    lowest = np.minimum.accumulate(np.where(known.finite, known.values, np.inf), axis=0)
    with np.errstate(all="ignore"):
        return replace(known, values=np.where(known.finite, known.values / lowest, np.nan))


@metric(unit="1", reads=[forgetting], source="playbook D5.5")
def worst_forgetting(run: Run) -> Series:
    r"""Forgetting of the probe that is forgotten most.

    $$\max_p \mathrm{ppl}_{p,t} / \min_{s \le t} \mathrm{ppl}_{p,s}$$

    Shape (C, 1).
    """
    return across(forgetting(run), np.nanmax, "worst_forgetting", "1")


def _column(series: Series, label: str, name: str) -> Series:
    if label not in series.places:
        return empty(name)
    place = series.places[label]
    return single(name, "1", series.steps, series.values[:, place], series.recorded[:, place])


def _geometric_mean(values: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(np.exp(np.log(values).mean(axis=-1)))
