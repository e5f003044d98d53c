"""Sections of a checkpoint about what the model does: activations, attention, mixture of experts, probes."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Number, doc
from ckaudit.contract.schema.tensors import Grid, Histogram, PackedGrid, Shape

HeadKind = Literal["positional", "first_token", "diagonal", "uniform", "content"]


class ActivationStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The output of one module in the forward pass of this step."""

    shape: Shape | UnsetType = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type, such as float32 or bfloat16.")] = UNSET
    mean: Annotated[Number | UnsetType, doc("Arithmetic mean of the finite elements.")] = UNSET
    std: Annotated[NonNegative | UnsetType, doc("Population standard deviation.")] = UNSET
    min: Annotated[Number | UnsetType, doc("Smallest element.")] = UNSET
    max: Annotated[Number | UnsetType, doc("Largest element.")] = UNSET
    rms: Annotated[NonNegative | UnsetType, doc("Square root of the mean square.")] = UNSET
    mean_abs: Annotated[NonNegative | UnsetType, doc("Mean absolute value (F5).")] = UNSET
    p50: Annotated[NonNegative | UnsetType, doc("Median over tokens of the root mean square of a token's vector.")] = UNSET
    p99: Annotated[NonNegative | UnsetType, doc("99th percentile of the same.")] = UNSET
    sparsity: Annotated[NonNegative | UnsetType, doc("Share of elements that are exactly zero, 0 to 1.")] = UNSET
    outlier_rate: Annotated[NonNegative | UnsetType, doc("Share of elements beyond six standard deviations, 0 to 1.")] = UNSET
    dead_units: Annotated[Count | UnsetType, doc("Units that never exceed 1e-3 in absolute value (F8).", unit="units")] = UNSET
    units: Annotated[Count | UnsetType, doc("Size of the last dimension.", unit="units")] = UNSET
    histogram: Annotated[Histogram | UnsetType, doc("Distribution of the elements.")] = UNSET
    nonfinite_count: Annotated[Count | UnsetType, doc("Elements that are NaN or infinite.", unit="elements")] = UNSET
    sampled: Annotated[
        Count | UnsetType,
        doc(
            "Elements looked at for all but min, max, dead_units and nonfinite_count, where that was not all of them.",
            unit="elements",
        ),
    ] = UNSET


class AttentionStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The attention of one layer, a number per query head."""

    entropy_per_head: Annotated[
        list[Number] | UnsetType, doc("Mean over queries of -sum p log p (F9).", unit="nats", shape="(H,)")
    ] = UNSET
    normalized_entropy_per_head: Annotated[
        list[Number] | UnsetType, doc("Mean over queries of entropy over the log of the keys it may see.", shape="(H,)")
    ] = UNSET
    sharp_share_per_head: Annotated[
        list[Number] | UnsetType, doc("Share of queries with entropy below log 2 (F10), 0 to 1.", shape="(H,)")
    ] = UNSET
    max_attn_per_head: Annotated[list[Number] | UnsetType, doc("Largest probability after softmax, at most 1.", shape="(H,)")] = (
        UNSET
    )
    max_logit_per_head: Annotated[
        list[Number] | UnsetType, doc("Largest scaled logit before softmax (M19).", unit="logit", shape="(H,)")
    ] = UNSET
    upper_triangle_mass_per_head: Annotated[
        list[Number] | UnsetType,
        doc("Mean probability that a query gives to later keys, those of its own prefix aside, 0 to 1.", shape="(H,)"),
    ] = UNSET
    nearest_similarity_per_head: Annotated[
        list[Number] | UnsetType, doc("Cosine to the most similar other head of the layer.", shape="(H,)")
    ] = UNSET
    kind_per_head: Annotated[list[HeadKind] | UnsetType, doc("What the head mostly follows.", shape="(H,)")] = UNSET
    sampled_qk_grid_32x32_per_head: Annotated[
        PackedGrid | list[Grid] | UnsetType, doc("Probabilities at sampled queries and keys.", shape="(H, 32, 32)")
    ] = UNSET
    sampled_qk_grid_32x32: Annotated[
        PackedGrid | list[Grid] | UnsetType, doc("Another writer's name of sampled_qk_grid_32x32_per_head.", shape="(H, 32, 32)")
    ] = UNSET
    heads: Annotated[Count | UnsetType, doc("Query heads.", unit="heads")] = UNSET
    kv_heads: Annotated[Count | UnsetType, doc("Key and value heads.", unit="heads")] = UNSET
    keys: Annotated[Count | UnsetType, doc("Longest number of keys that a query may see.", unit="tokens")] = UNSET
    causal: Annotated[bool | UnsetType, doc("Whether a query must not see later keys.")] = UNSET


class MoeStats(Struct, kw_only=True, omit_defaults=True):
    """The routing of one mixture-of-experts layer."""

    counts: Annotated[list[NonNegative] | UnsetType, doc("Tokens routed to each expert.", unit="tokens", shape="(E,)")] = UNSET
    routed: Annotated[NonNegative | UnsetType, doc("Token assignments asked for.", unit="tokens")] = UNSET
    dropped: Annotated[NonNegative | UnsetType, doc("Assignments refused for lack of capacity.", unit="tokens")] = UNSET
    router_probability: Annotated[
        list[NonNegative] | UnsetType, doc("Mean over tokens of the router's probability of each expert, in sum 1.", shape="(E,)")
    ] = UNSET
    aux_loss: Annotated[Number | UnsetType, doc("Load-balance loss (M28), before its coefficient.")] = UNSET


class ProbeStats(Struct, kw_only=True, omit_defaults=True):
    """What the model said to one fixed probe."""

    exact_match: Annotated[NonNegative | UnsetType, doc("Share of tokens continued exactly, 0 to 1.")] = UNSET
    overlap: Annotated[NonNegative | UnsetType, doc("Share of tokens in common with the true continuation, 0 to 1.")] = UNSET
    loss: Annotated[Number | UnsetType, doc("Mean negative log likelihood of the truth.", unit="nats/token")] = UNSET
    perplexity: Annotated[NonNegative | UnsetType, doc("exp(loss) of the true continuation.")] = UNSET
    entropy: Annotated[
        NonNegative | UnsetType, doc("Mean over positions of -sum p log p of the next token (M23).", unit="nats")
    ] = UNSET
    shift: Annotated[
        Count | UnsetType, doc("Positions by which the tokens of the probe it is named after were moved (D3.3).", unit="tokens")
    ] = UNSET
    shifted_by: Annotated[
        Literal["position_ids", "prepended"] | UnsetType, doc("How: by later position numbers, or by tokens put before.")
    ] = UNSET
    held_out: Annotated[bool | UnsetType, doc("Whether training never sees the probe.")] = UNSET
    hash: Annotated[str | UnsetType, doc("Hash of the probe's tokens.")] = UNSET
