"""Data: what the batches were made of, against what they were made of at first."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty, single


@metric(unit="nats", reads=["data.token_histogram"], source="catalogue M35; Kullback & Leibler 1951")
def token_kl_drift(run: Run, *, pseudo_count: float = 1.0) -> Series:
    r"""How far the tokens of each checkpoint's batch are from those of the first.

    $$D_t = \sum_b p_t(b) \log \frac{p_t(b)}{p_0(b)}$$

    Shape (C, 1). Not recorded at the first checkpoint with a histogram, nor where the number of buckets differs from its.

    Args:
        run: The run.
        pseudo_count: Added to every bucket, so that one token too few is not infinitely far (Laplace's rule).
    """
    counts = run.value("data.token_histogram")
    rows = np.flatnonzero(counts.recorded.any(axis=1))
    if len(rows) < 2:
        return empty("token_kl_drift")
    alike = (counts.recorded == counts.recorded[rows[0]]).all(axis=1) & np.isfinite(counts.values).any(axis=1)
    shares = counts.values + pseudo_count
    shares = shares / np.nansum(shares, axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        drift = np.nansum(shares * np.log(shares / shares[rows[0]]), axis=1)
    known = alike & (np.arange(len(drift)) > rows[0])
    return replace(single("token_kl_drift", "nats", counts.steps, np.where(known, drift, np.nan)), recorded=known[:, None])
