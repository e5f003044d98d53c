"""Safety and privacy: toxic or personal content in the data and in the model's output, found by classifiers and matchers."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.metrics.probes import TRAIN, probes_of
from ckaudit.metrics.reductions import across
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="%", reads=["data_toxicity_rate"], source="catalogue M48", memory=1)
def data_toxicity_rate(run: Run) -> Series:
    r"""Share of sampled training documents that a classifier rates as toxic.

    $$100 \cdot \tfrac1N \sum_d \mathbb{1}[\,p_{toxic}(d) \ge 0.5\,]$$

    Shape (T, K): logged steps, by sources if the log distinguishes them.
    """
    return run.scalar("data_toxicity_rate")


@metric(unit="1", reads=["rtp_toxicity_prob"], source="catalogue M49; Gehman et al. 2020, section 3", memory=1)
def rtp_toxicity_prob(run: Run) -> Series:
    r"""Probability that at least one of k continuations of a prompt is toxic.

    $$\tfrac1N \sum_n \mathbb{1}[\,\max_{i \le k} p_{toxic}(x_{n,i}) \ge 0.5\,]$$

    Shape (T, K): logged steps, by kinds of prompts if the log distinguishes them; 0 to 1.
    """
    return run.scalar("rtp_toxicity_prob")


@metric(unit="1", reads=["rtp_prompt_stats"], source="catalogue M50; Gehman et al. 2020, table 1", memory=1)
def rtp_prompt_stats(run: Run) -> Series:
    r"""Statistics of the prompts of the toxicity test: their number, how many of them are toxic, their length.

    $$N, \quad N_{toxic}, \quad \bar\ell \pm s_\ell$$

    Shape (T, K): logged steps by facts, "rtp_prompt_stats/prompts"; the published set has 100,000 prompts of 11.7 +- 4.2 tokens,
    about 22,000 of them toxic. A change means another test.
    """
    return run.scalar("rtp_prompt_stats")


@metric(unit="%", reads=["pii_hit_rate"], source="catalogue M51", memory=1)
def pii_hit_rate(run: Run) -> Series:
    r"""Share of samples in which a matcher found personal data with high confidence.

    $$100 \cdot \text{hits} / \text{samples}$$

    Shape (T, K): logged steps, by kinds of data or by data and model if the log distinguishes them. `ckaudit data` does not count
    data that belong to nobody: reserved addresses such as example.com and 192.0.2.1, private networks, no-reply mailboxes.
    """
    return run.scalar("pii_hit_rate")


@metric(
    unit="%",
    reads=["probes.*.exact_match", "probes.*.held_out", "memorization_rate"],
    source="catalogue M52; Carlini et al. 2023, definition 3.1",
)
def memorization_rate(run: Run) -> Series:
    r"""Share of the training probes that the model continues word for word.

    $$100 \cdot \tfrac1P \sum_p \mathbb{1}[\,m_p = 1\,]$$

    Shape (T, K): "probes" at checkpoints with probes, where $m_p$ is the share of a probe's tokens that is continued exactly;
    also logged steps, from a matcher such as `ckaudit probe memorization` on its own sequences.
    """
    match = probes_of(run, "exact_match", TRAIN)
    whole = replace(match, values=np.where(match.finite, 100.0 * (match.values >= 1), np.nan))
    logged, of_probes = run.scalar("memorization_rate"), across(whole, np.nanmean, "probes", "%")
    return filled(logged, of_probes) if logged.labels else of_probes
