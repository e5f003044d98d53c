"""Data: what the batches were made of, against what they were made of at first."""

import numpy as np

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as
from ckaudit.run.run import Run
from ckaudit.run.series import Series, at, empty, single


@metric(unit="nats", reads=["data.token_histogram", "token_kl_drift"], source="catalogue M35; Kullback & Leibler 1951")
def token_kl_drift(run: Run, *, pseudo_count: float = 1.0) -> Series:
    r"""How far the tokens of each checkpoint's batch are from those of the first.

    $$D_t = \sum_b p_t(b) \log \frac{p_t(b)}{p_0(b)}$$

    Shape (T, 1). Not recorded at the first checkpoint with a histogram, nor where the number of buckets differs from its.
    Elsewhere what the trainer logged counts, against a reference of its own.

    Args:
        run: The run.
        pseudo_count: Added to every bucket, so that one token too few is not infinitely far (Laplace's rule).
    """
    counts = run.value("data.token_histogram")
    rows = np.flatnonzero(counts.recorded.any(axis=1))
    if len(rows) < 2:
        return logged_as(run, "token_kl_drift")
    alike = (counts.recorded == counts.recorded[rows[0]]).all(axis=1) & np.isfinite(counts.values).any(axis=1)
    shares = counts.values + pseudo_count
    with np.errstate(all="ignore"):
        shares = shares / np.nansum(shares, axis=1, keepdims=True)
        drift = np.nansum(shares * np.log(shares / shares[rows[0]]), axis=1)
    known = alike & (np.arange(len(drift)) > rows[0])
    series = single("token_kl_drift", "nats", counts.steps, np.where(known, drift, np.nan), known)
    return filled(series, logged_as(run, "token_kl_drift"))


@metric(unit="nats", reads=["data.input_mean", "data.input_std"], source="Kullback & Leibler 1951, of two normal distributions")
def input_kl_drift(run: Run) -> Series:
    r"""How far the inputs of each checkpoint's batch are from those of the first, by mean and deviation alone.

    $$D_t = \log \frac{\sigma_0}{\sigma_t} + \frac{\sigma_t^2 + (\mu_t - \mu_0)^2}{2 \sigma_0^2} - \frac12$$

    Shape (T, 1), of inputs that are numbers: pictures, sound, tables. Not recorded at the first checkpoint that has both, nor
    where they do not vary.
    """
    mean, std = run.value("data.input_mean"), run.value("data.input_std")
    if not mean or not std:
        return empty("input_kl_drift")
    deviations = at(std, mean.steps).values[:, 0]
    rows = np.flatnonzero(mean.finite[:, 0] & (deviations > 0))
    if len(rows) < 2:
        return empty("input_kl_drift")
    centers, widths = mean.values[rows, 0], deviations[rows]
    with np.errstate(all="ignore"):
        squares = np.square(widths / widths[0]) + np.square((centers - centers[0]) / widths[0])
        drift = np.log(widths[0] / widths) + squares / 2 - 0.5
    return single("input_kl_drift", "nats", mean.steps[rows[1:]], np.maximum(drift[1:], 0.0))


@metric(unit="1", reads=["data.target_shift_match"], source="playbook, analysis contract", memory=1)
def target_shift_match(run: Run) -> Series:
    r"""Share of targets that are the next input token.

    $$\tfrac1N \sum_t \mathbb{1}[\,y_t = x_{t+1}\,]$$

    Shape (C, 1): 1 for a language model whose targets are shifted once, about the repetition of tokens where they are not.
    """
    return run.value("data.target_shift_match")


@metric(unit="1", reads=["data.embedded_shift_match"], source="playbook, analysis contract", memory=1)
def embedded_shift_match(run: Run) -> Series:
    r"""Share of the targets that are the next token of what an embedding of the model reads.

    $$\max_E \tfrac1N \sum_t \mathbb{1}[\,y_t = e_{t+1}\,]$$

    Shape (C, 1), the largest of all embeddings E. Tokens that are the same as the one before do not count. 1 for a language
    model, and for the decoder of a translator, which is given the sentence that it is to say.
    """
    return run.value("data.embedded_shift_match")


@metric(unit="1", reads=["data.target_equals_input"], source="playbook, analysis contract", memory=1)
def target_equals_input(run: Run) -> Series:
    r"""Share of targets that are their own input token: near 1, the model learns to copy.

    $$\tfrac1N \sum_t \mathbb{1}[\,y_t = x_t\,]$$

    Shape (C, 1). Only of targets as the loss saw them: a model that shifts labels itself is given the inputs rightly.
    """
    return run.value("data.target_equals_input")


@metric(unit="1", reads=["data.target_equals_embedded"], source="playbook, analysis contract", memory=1)
def target_equals_embedded(run: Run) -> Series:
    r"""Share of the targets that are the token that an embedding of the model reads at their own place.

    $$\max_E \tfrac1N \sum_t \mathbb{1}[\,y_t = e_t\,]$$

    Shape (C, 1), the largest of all embeddings E, over the targets that the loss counts: near 1, a model that fills in masked
    tokens is shown them, and one that writes is shown what it is to write next.
    """
    return run.value("data.target_equals_embedded")


@metric(unit="1", reads=["data.duplicate_share"], source="catalogue M36; Lee et al. 2022, section 4", memory=1)
def batch_duplicate_share(run: Run) -> Series:
    r"""Share of the rows of a batch, sequences or pictures, that are equal to an earlier one of it.

    $$1 - \frac{|\{x_1, \dots, x_B\}|}{B}$$

    Shape (C, 1), 0 to 1. Not recorded for a single row, nor for rows of fewer than 8 numbers of which
    many are equal, as of codes.
    """
    return run.value("data.duplicate_share")


@metric(unit="%", reads=["held_out_rows_trained_on"], source="catalogue M37; Lee et al. 2022, section 6", memory=1)
def held_out_rows_trained_on(run: Run) -> Series:
    r"""Share of the rows declared held out (`Recorder.hold_out`) that were met in batches of the training so far.

    $$100 \cdot \tfrac1N \sum_h \mathbb{1}[\,h \in \{B_1, \dots, B_t\}\,]$$

    Shape (T, 1): steps that are looked at, every 25th and those with a checkpoint; of the batches between them nothing is
    known, so that it is a lower bound. Rows are the same where all their elements are. Not recorded where no rows were
    declared held out, or where rows of one batch meet each other half as often as they meet those: few are different.
    """
    return run.scalar("held_out_rows_trained_on")


@metric(unit="steps", reads=["batch_repeat_distance"], source="playbook D1.6", memory=1)
def batch_repeat_distance(run: Run) -> Series:
    r"""How many steps ago exactly the same inputs were seen, sessions before a resume included.

    $$t - \max\{s < t : x_s = x_t\}$$

    Shape (T, 1): steps with a batch that was seen before; all others are not recorded. 1 all the time is a loader that
    stands still; the step itself, right after a resume, is one that began anew; a constant is an epoch.
    """
    return run.scalar("batch_repeat_distance")


@metric(unit="1", reads=["batch_reused"], source="playbook D1.6", memory=1)
def batch_reused(run: Run) -> Series:
    r"""Whether the inputs lie in the memory of those before, which the program holds; a loader makes a new array each time.

    $$1 \text{ where } x_t \text{ lies where } x_{t-1} \text{ lies}$$

    Shape (T, 1): 1 at steps where they do, from the third repeat on; all others are not recorded.
    """
    return run.scalar("batch_reused")
