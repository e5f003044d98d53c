"""Data: the contents of the batches, compared with those at the start."""

import numpy as np

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, logged_as
from ckaudit.run.run import Run
from ckaudit.run.series import Series, at, empty, single


@metric(unit="nats", reads=["data.token_histogram", "token_kl_drift"], source="catalogue M35; Kullback & Leibler 1951")
def token_kl_drift(run: Run, *, pseudo_count: float = 1.0) -> Series:
    r"""KL divergence of each checkpoint's batch tokens from those of the first checkpoint.

    $$D_t = \sum_b p_t(b) \log \frac{p_t(b)}{p_0(b)}$$

    Shape (T, 1). Not recorded at the first checkpoint with a histogram, nor if its number of buckets differs. Elsewhere the
    trainer's logged value counts, with a reference of its own.

    Args:
        run: The run.
        pseudo_count: Added to every bucket, so that a missing token does not make the divergence infinite (Laplace's rule).
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
    r"""KL divergence of each checkpoint's batch inputs from those of the first, by mean and standard deviation alone.

    $$D_t = \log \frac{\sigma_0}{\sigma_t} + \frac{\sigma_t^2 + (\mu_t - \mu_0)^2}{2 \sigma_0^2} - \frac12$$

    Shape (T, 1), for numeric inputs: images, sound, tables. Not recorded at the first checkpoint that has both, nor if the inputs
    do not vary.
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

    Shape (C, 1): 1 for a language model whose targets are shifted once, about the rate of repeated tokens if they are not.
    """
    return run.value("data.target_shift_match")


@metric(unit="1", reads=["data.embedded_shift_match"], source="playbook, analysis contract", memory=1)
def embedded_shift_match(run: Run) -> Series:
    r"""Share of the targets that are the next input token of one of the model's embeddings.

    $$\max_E \tfrac1N \sum_t \mathbb{1}[\,y_t = e_{t+1}\,]$$

    Shape (C, 1), the largest of all embeddings E. Tokens equal to the one before do not count. 1 for a language model, and for
    the decoder of a translation model, whose input is the target sentence.
    """
    return run.value("data.embedded_shift_match")


@metric(unit="1", reads=["data.target_equals_input"], source="playbook, analysis contract", memory=1)
def target_equals_input(run: Run) -> Series:
    r"""Share of targets that are their own input token: near 1, the model learns to copy.

    $$\tfrac1N \sum_t \mathbb{1}[\,y_t = x_t\,]$$

    Shape (C, 1). Only for targets as the loss receives them: a model that shifts labels itself correctly gets its inputs as
    labels.
    """
    return run.value("data.target_equals_input")


@metric(unit="1", reads=["data.target_equals_embedded"], source="playbook, analysis contract", memory=1)
def target_equals_embedded(run: Run) -> Series:
    r"""Share of the targets that equal the input token of one of the model's embeddings at the same position.

    $$\max_E \tfrac1N \sum_t \mathbb{1}[\,y_t = e_t\,]$$

    Shape (C, 1), the largest of all embeddings E, over the targets that the loss counts. Near 1, a masked model sees its masked
    tokens, and a generative model sees the token that it is to predict.
    """
    return run.value("data.target_equals_embedded")


@metric(unit="1", reads=["data.duplicate_share"], source="catalogue M36; Lee et al. 2022, section 4", memory=1)
def batch_duplicate_share(run: Run) -> Series:
    r"""Share of the rows of a batch, such as sequences or images, that equal an earlier row.

    $$1 - \frac{|\{x_1, \dots, x_B\}|}{B}$$

    Shape (C, 1), 0 to 1. Not recorded for a single row, nor for rows of fewer than 8 numbers of which many are equal, such as
    codes.
    """
    return run.value("data.duplicate_share")


@metric(unit="%", reads=["held_out_rows_trained_on"], source="catalogue M37; Lee et al. 2022, section 6", memory=1)
def held_out_rows_trained_on(run: Run) -> Series:
    r"""Share of the rows declared held out (`Recorder.hold_out`) that occurred in training batches so far.

    $$100 \cdot \tfrac1N \sum_h \mathbb{1}[\,h \in \{B_1, \dots, B_t\}\,]$$

    Shape (T, 1): every 25th step and steps with a checkpoint. It is a lower bound, because the batches in between are not
    examined. Rows are equal if all their elements are. Not recorded if no rows are declared held out, or if rows of a batch match
    each other at least half as often as they match held-out rows: then too few rows differ.
    """
    return run.scalar("held_out_rows_trained_on")


@metric(unit="steps", reads=["batch_repeat_distance"], source="playbook D1.6", memory=1)
def batch_repeat_distance(run: Run) -> Series:
    r"""Number of steps since exactly the same inputs occurred, including sessions before a resume.

    $$t - \max\{s < t : x_s = x_t\}$$

    Shape (T, 1): steps with a repeated batch; other steps are not recorded. A constant 1 is a loader that is stuck; the step
    number itself, right after a resume, is a loader that started over; another constant is an epoch.
    """
    return run.scalar("batch_repeat_distance")


@metric(unit="1", reads=["batch_reused"], source="playbook D1.6", memory=1)
def batch_reused(run: Run) -> Series:
    r"""Whether the inputs use the memory of the previous batch, which the program still holds; a loader makes new arrays.

    $$1 \text{ where } x_t \text{ lies where } x_{t-1} \text{ lies}$$

    Shape (T, 1): 1 at such steps from the third repeat on; other steps are not recorded.
    """
    return run.scalar("batch_reused")
