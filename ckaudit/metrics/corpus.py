"""The corpus: the composition of the training data, as logged by whoever built or sampled it."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="1", reads=["source_mix_share"], source="catalogue M29; Gao et al. 2021, table 1", memory=1)
def source_mix_share(run: Run) -> Series:
    r"""Share of each source in the tokens trained on.

    $$s_k = n_k / \textstyle\sum_j n_j$$

    Shape (T, K): logged steps by sources, "source_mix_share/web"; a row sums to 1 if every source is logged.
    """
    return run.scalar("source_mix_share")


@metric(unit="1", reads=["language_share"], source="catalogue M30", memory=1)
def language_share(run: Run) -> Series:
    r"""Share of each language in the tokens trained on.

    $$s_k = n_k / \textstyle\sum_j n_j$$

    Shape (T, K): logged steps by languages, "language_share/de".
    """
    return run.scalar("language_share")


@metric(unit="%", reads=["filter_reject_rate"], source="catalogue M31; Rae et al. 2021, appendix A", memory=1)
def filter_reject_rate(run: Run) -> Series:
    r"""Share of the documents that each filter of the data pipeline rejected.

    $$100 \cdot \text{rejected}_f / \text{seen}_f$$

    Shape (T, F): logged steps by filters, "filter_reject_rate/length". `ckaudit data` counts a document without a filter as kept
    if other documents name one.
    """
    return run.scalar("filter_reject_rate")


@metric(unit="bytes/token", reads=["bytes_per_token"], source="catalogue M32", memory=1)
def bytes_per_token(run: Run) -> Series:
    r"""Mean number of text bytes per token.

    $$\text{bytes of UTF-8} / \text{tokens}$$

    Shape (T, K): logged steps, by sources if the log distinguishes them.
    """
    return run.scalar("bytes_per_token")


@metric(unit="tokens", reads=["seq_len_p50_p95"], source="catalogue M33", memory=1)
def seq_len_p50_p95(run: Run) -> Series:
    r"""Median and 95th percentile of the sequence length before packing.

    $$P_{50}, \quad P_{95}$$

    Shape (T, 2): logged steps by percentiles, "seq_len_p50_p95/p50" and "seq_len_p50_p95/p95".
    """
    return run.scalar("seq_len_p50_p95")


@metric(unit="1", reads=["pad_fraction"], source="catalogue M34", memory=1)
def pad_fraction(run: Run) -> Series:
    r"""Share of the positions of a batch that are padding.

    $$n_{pad} / n$$

    Shape (T, 1): logged steps, 0 to 1.
    """
    return run.scalar("pad_fraction")


@metric(unit="%", reads=["near_dup_rate"], source="catalogue M36; Lee et al. 2022, section 4", memory=1)
def near_dup_rate(run: Run) -> Series:
    r"""Share of the documents that are nearly equal to another one, by MinHash or suffix arrays.

    $$100 \cdot \tfrac1N \sum_d \mathbb{1}[\,\max_{e \ne d} J(d, e) \ge j\,]$$

    Shape (T, K): logged steps, by sources if the log distinguishes them; J is the Jaccard similarity of their shingles. `ckaudit
    data` uses five lower-case words per shingle and j = 0.8.
    """
    return run.scalar("near_dup_rate")


@metric(unit="%", reads=["train_val_overlap"], source="catalogue M37; Lee et al. 2022, section 6", memory=1)
def train_val_overlap(run: Run) -> Series:
    r"""Share of the held-out documents that have a near duplicate in the training data.

    $$100 \cdot \tfrac1N \sum_{v} \mathbb{1}[\,\max_{d \in train} J(v, d) \ge j\,]$$

    Shape (T, K): logged steps, by held-out sets if the log distinguishes them. Above 4 % in some standard sets. J is the Jaccard
    similarity of their shingles: `ckaudit data` uses five lower-case words per shingle and j = 0.8.
    """
    return run.scalar("train_val_overlap")


@metric(unit="documents", reads=["doc_repeat_hotspots"], source="catalogue M38; Lee et al. 2022, section 1", memory=1)
def doc_repeat_hotspots(run: Run) -> Series:
    r"""Size of the largest clusters of equal documents.

    $$|\{d : d \equiv c\}|$$

    Shape (T, K): logged steps by clusters, one column if only the largest is logged. A public corpus held one sentence of 61
    words over 60,000 times.
    """
    return run.scalar("doc_repeat_hotspots")
