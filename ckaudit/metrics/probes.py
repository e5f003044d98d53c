"""Probes: memorised continuations, and the model's outputs on a batch that never changes."""

from typing import Literal

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, together
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series

Group = Literal["train", "held_out"]
TRAIN: Group = "train"
HELD_OUT: Group = "held_out"


def groups_of(run: Run, labels: tuple[str, ...]) -> list[Group]:
    """Return the group of each probe; one without a record is held out if its name begins so, else a training probe."""
    held = run.series("probes", "held_out")
    outside = {label for column, label in enumerate(held.labels) if (held.values[held.recorded[:, column], column] == 1).any()}
    silent = set(labels) - {label for column, label in enumerate(held.labels) if held.recorded[:, column].any()}
    outside |= {label for label in silent if label.startswith(HELD_OUT)}
    return [HELD_OUT if label in outside else TRAIN for label in labels]


def probes_of(run: Run, field: str, group: Group) -> Series:
    """Return one field of the probes of one group, shape (C, P)."""
    series = run.series("probes", field)
    groups = dict(zip(series.labels, groups_of(run, series.labels), strict=True))
    return series.only(lambda label: groups[label] == group)


TWIN = ".shifted"


@metric(
    unit="1",
    reads=["probes.*.exact_match", "probes.*.held_out", "probe_accuracy"],
    source="playbook, memorization protocol MP-2 to MP-4",
    memory=1,
)
def probe_accuracy(run: Run) -> Series:
    r"""Share of a probe's tokens continued exactly, averaged over the training probes and over the held-out ones.

    $$a_g = \tfrac{1}{|g|} \sum_{p \in g} m_p$$

    Shape (C, 2): "train" and "held_out", if each has probes. A probe without a group is a training probe, unless its name begins
    with "held_out". Not recorded if a probe seen before is missing. Without probes, the logged values of this name and these
    labels count.
    """
    match = run.series("probes", "exact_match")
    return match.grouped(groups_of(run, match.labels), _mean) if match else run.scalar("probe_accuracy")


@metric(unit="nats/token", reads=["fixed_probe_loss"], source="catalogue M57", memory=1)
def fixed_probe_loss(run: Run) -> Series:
    r"""Loss on a batch that never changes, after each checkpoint's update.

    $$L_t = -\tfrac1N \sum_i \log p_t(y_i \mid x_{<i})$$

    Shape (T, B): logged steps by pinned batches.
    """
    return run.scalar("fixed_probe_loss")


@metric(unit="nats", reads=["logit_entropy_probe"], source="catalogue M23", memory=1)
def logit_entropy_probe(run: Run) -> Series:
    r"""Entropy of the model's predictions on a batch that never changes, mean over positions.

    $$H = -\tfrac1N \sum_n \sum_v p_{nv} \log p_{nv}$$

    Shape (T, B): logged steps by pinned batches; from 0 to the log of the vocabulary.
    """
    return run.scalar("logit_entropy_probe")


@metric(unit="%", reads=["topk_mass_probe"], source="catalogue M24", memory=1)
def topk_mass_probe(run: Run) -> Series:
    r"""Total probability of the likeliest tokens on a batch that never changes, mean over positions.

    $$m = \tfrac{100}{N} \sum_n \sum_{v \in \mathrm{top}_k(n)} p_{nv}, \qquad k = 10$$

    Shape (T, B): logged steps by pinned batches.
    """
    return run.scalar("topk_mass_probe")


@metric(unit="nats", reads=["output_kl_to_prev"], source="catalogue M25; Kullback & Leibler 1951", memory=1)
def output_kl_to_prev(run: Run) -> Series:
    r"""KL divergence of the model's predictions on a fixed batch from those at the previous checkpoint.

    $$D_t = \tfrac1P \sum_n \sum_v p_t(v \mid n) \log \frac{p_t(v \mid n)}{p_{t-1}(v \mid n)}$$

    Shape (T, B): logged steps by pinned batches. It grows with the distance of two checkpoints, so only equal distances are
    comparable.
    """
    return run.scalar("output_kl_to_prev")


@metric(
    unit="1",
    reads=["probes.*.perplexity", "probes.*.loss", "probe_perplexity"],
    source="playbook D5.5, memorization protocol MP-2",
    memory=1,
)
def probe_perplexity(run: Run) -> Series:
    r"""Perplexity of each probe's true text; that of early data rises if it is forgotten.

    $$\exp(L)$$

    Shape (C, P): checkpoints by probes. Computed from the loss if no perplexity is recorded; if both are missing, the logged
    value of this name with the probe as label counts.
    """
    series = filled(run.series("probes", "perplexity"), run.series("probes", "loss").mapped(np.exp, "probe_perplexity", "1"))
    return filled(series, run.scalar("probe_perplexity"))


@metric(unit="nats/token", reads=["probes.*.loss", "probes.*.shift"], source="playbook D3.3", memory=1)
def probe_shift_loss(run: Run) -> Series:
    r"""Increase of the loss on the same tokens at other positions: 0 if the model uses content alone.

    $$L_{shifted} - L$$

    Shape (C, B): checkpoints by probes that have a twin of the same name with the suffix ".shifted". NaN if either is.
    """
    return _of_twin(run, "loss")


@metric(unit="nats", reads=["probes.*.entropy", "probes.*.shift"], source="playbook D3.3", memory=1)
def probe_shift_entropy(run: Run) -> Series:
    r"""Increase of the model's entropy on the same tokens at other positions.

    $$H_{shifted} - H$$

    Shape (C, B): checkpoints by probes that have a twin, as in probe_shift_loss.
    """
    return _of_twin(run, "entropy")


def _of_twin(run: Run, field: str) -> Series:
    values = run.series("probes", field)
    twins, shift = together(values.only(lambda name: name.endswith(TWIN)), run.series("probes", "shift"))
    named = replace(twins, labels=tuple(name.removesuffix(TWIN) for name in twins.labels))
    named = replace(named, recorded=twins.recorded & shift.recorded)
    moved, of_probe = together(named, values)
    recorded = moved.recorded & of_probe.recorded
    with np.errstate(invalid="ignore"):
        return replace(moved, values=np.where(recorded, moved.values - of_probe.values, np.nan), recorded=recorded)


def _mean(values: Floats) -> Floats:
    """Return the mean over the last axis, shape (T,)."""
    means: Floats = values.mean(axis=-1)
    return means
