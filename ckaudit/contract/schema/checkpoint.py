"""`ck.analysis.v1`: one checkpoint of statistics, the file `analysis_checkpoint_step_00000500.json`.

Step N counts finished update attempts. Loss, gradients, activations and attention are those of attempt N, computed on the weights
after attempt N-1; weights and their deltas are measured after it. Step 0 has no update.

Sections come first: those with an entry per parameter tensor, those about the model's behaviour (activations, attention, experts,
probes), and those about the training itself (optimizer, data, history, cost, ranks, parity, replay).
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ckaudit.contract.schema.loss_functions import LossFunctionStats, LossTermStats
from ckaudit.contract.schema.numbers import Count, NonNegative, Number, Step, doc

GRID_SIZE = 32
GRID = "sampled_grid_32x32"
QK_GRIDS = ("sampled_qk_grid_32x32_per_head", "sampled_qk_grid_32x32")
PERCENTILE_LEVELS = (1, 5, 25, 50, 75, 95, 99)

Percentiles = Annotated[list[Number], Meta(min_length=7, max_length=7)]
Shape = Annotated[list[Count], doc("Size of the tensor along each dimension.", unit="elements", shape="(D,)")]
Placement = Literal["replicated", "shard", "partial"]

HeadKind = Literal["positional", "first_token", "diagonal", "uniform", "content"]
VERSION = "ck.analysis.v1"
Trigger = Literal[
    "cadence", "loss_spike", "grad_norm", "dead_parameter", "nonfinite", "weights_written", "manual", "first", "last"
]
PLANNED = frozenset({"cadence", "first", "last"})
"""Triggers that are not events; any other word is an event, including user-defined ones."""

GradientsSource = Literal["pre_clip", "rescaled", "post_clip"]


class BinRange(Struct, gc=False):
    """Bins of equal width, without writing their edges."""

    range: Annotated[list[Number], Meta(min_length=2, max_length=2), doc("Lower and upper end of all bins.", shape="(2,)")]
    count: Annotated[int, Meta(ge=1), doc("Number of bins of equal width.", unit="bins")]


class Histogram(Struct, gc=False):
    """The distribution of the values of a tensor."""

    bins: Annotated[BinRange | list[Number], doc("n+1 edges, n centres, or the range and number of equal bins.", shape="(n+1,)")]
    counts: Annotated[list[NonNegative], doc("Number of values in each bin.", unit="elements", shape="(n,)")]


class PackedGrid(Struct, gc=False):
    """A grid of 8-bit numbers: value = min + (max - min) * byte / 255."""

    encoding: Annotated[Literal["q8"], doc("Encoding of `data`.")]
    shape: Annotated[list[Count], doc("Size of the unpacked grid; a leading size is the number of heads.", shape="(2,) or (3,)")]
    min: Annotated[Number, doc("Value of byte 0.")]
    max: Annotated[Number, doc("Value of byte 255.")]
    data: Annotated[str, doc("The bytes in C order, base64.")]


Grid = PackedGrid | list[list[Number]]


class WeightStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One weight tensor, after the update of this step."""

    shape: Shape | UnsetType = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type, such as float32 or bfloat16.")] = UNSET
    numel: Annotated[Count | UnsetType, doc("Number of elements.", unit="elements")] = UNSET
    mean: Annotated[Number | UnsetType, doc("Arithmetic mean of the finite elements.")] = UNSET
    std: Annotated[NonNegative | UnsetType, doc("Population standard deviation.")] = UNSET
    m2: Annotated[NonNegative | UnsetType, doc("Sum of squared deviations from the mean: merges with numel and mean.")] = UNSET
    min: Annotated[Number | UnsetType, doc("Smallest element.")] = UNSET
    max: Annotated[Number | UnsetType, doc("Largest element.")] = UNSET
    frobenius_norm: Annotated[NonNegative | UnsetType, doc("Square root of the sum of squared elements.")] = UNSET
    spectral_norm: Annotated[NonNegative | UnsetType, doc("Largest singular value, by power iteration.")] = UNSET
    percentiles: Annotated[Percentiles | UnsetType, doc("Values at 1, 5, 25, 50, 75, 95 and 99 %.", shape="(7,)")] = UNSET
    sampled: Annotated[
        Count | UnsetType, doc("Number of elements in percentiles and histogram; absent: all.", unit="elements")
    ] = UNSET
    histogram: Annotated[Histogram | UnsetType, doc("Distribution of the elements.")] = UNSET
    sampled_grid_32x32: Annotated[Grid | UnsetType, doc("Elements at rows and columns floor(i*n/32).", shape="(32, 32)")] = UNSET
    nonfinite_count: Annotated[Count | UnsetType, doc("Elements that are NaN or infinite.", unit="elements")] = UNSET
    tied_to: Annotated[str | UnsetType, doc("Name of the tensor whose storage this tensor shares.")] = UNSET
    placement: Annotated[Placement | UnsetType, doc("The part of the tensor that a rank's own file describes.")] = UNSET
    hash: Annotated[str | UnsetType, doc("Hash of the exact bytes, as algorithm:hex.")] = UNSET


class GradientStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The gradient of one weight tensor: after AMP unscale and before clipping, unless `gradients_source` says otherwise."""

    norm: Annotated[NonNegative | UnsetType, doc("L2 norm of the gradient.")] = UNSET
    mean: Annotated[Number | UnsetType, doc("Arithmetic mean of the finite elements.")] = UNSET
    std: Annotated[NonNegative | UnsetType, doc("Population standard deviation.")] = UNSET
    m2: Annotated[NonNegative | UnsetType, doc("Sum of squared deviations from the mean.")] = UNSET
    min: Annotated[Number | UnsetType, doc("Smallest element.")] = UNSET
    max: Annotated[Number | UnsetType, doc("Largest element.")] = UNSET
    zero_fraction: Annotated[NonNegative | UnsetType, doc("Share of elements that are exactly zero, 0 to 1.")] = UNSET
    percentiles: Annotated[Percentiles | UnsetType, doc("Values at 1, 5, 25, 50, 75, 95 and 99 %.", shape="(7,)")] = UNSET
    sampled: Annotated[
        Count | UnsetType, doc("Number of elements in percentiles and histogram; absent: all.", unit="elements")
    ] = UNSET
    histogram: Annotated[Histogram | UnsetType, doc("Distribution of the elements.")] = UNSET
    sampled_grid_32x32: Annotated[Grid | UnsetType, doc("Elements at rows and columns floor(i*n/32).", shape="(32, 32)")] = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type of the gradient.")] = UNSET
    numel: Annotated[Count | UnsetType, doc("Number of elements.", unit="elements")] = UNSET
    nonfinite_count: Annotated[Count | UnsetType, doc("Elements that are NaN or infinite.", unit="elements")] = UNSET
    placement: Annotated[Placement | UnsetType, doc("The part of the gradient that a rank's own file describes.")] = UNSET
    hash: Annotated[str | UnsetType, doc("Hash of the exact bytes, as algorithm:hex.")] = UNSET


class DeltaStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The distance that one weight tensor moved."""

    norm: Annotated[NonNegative | UnsetType, doc("L2 norm of the last update, w_new - w_old.")] = UNSET
    relative: Annotated[NonNegative | UnsetType, doc("`norm` divided by the norm of the tensor.")] = UNSET
    moved: Annotated[NonNegative | UnsetType, doc("Norm of w_t - w_0 divided by the norm of w_0.")] = UNSET
    decay: Annotated[
        NonNegative | UnsetType, doc("Share of the tensor that weight decay removes in one update: learning rate times decay.")
    ] = UNSET
    learning_rate: Annotated[NonNegative | UnsetType, doc("Learning rate of the tensor's group, if groups differ.")] = UNSET
    unchanged: Annotated[NonNegative | UnsetType, doc("Share of half-precision elements that the update left unchanged.")] = UNSET


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
    p50: Annotated[NonNegative | UnsetType, doc("Median over tokens of the root mean square of each token's vector.")] = UNSET
    p99: Annotated[
        NonNegative | UnsetType, doc("99th percentile over tokens of the root mean square of each token's vector.")
    ] = UNSET
    sparsity: Annotated[NonNegative | UnsetType, doc("Share of elements that are exactly zero, 0 to 1.")] = UNSET
    outlier_rate: Annotated[NonNegative | UnsetType, doc("Share of elements beyond six standard deviations, 0 to 1.")] = UNSET
    dead_units: Annotated[Count | UnsetType, doc("Units that never exceed 1e-3 in absolute value (F8).", unit="units")] = UNSET
    units: Annotated[Count | UnsetType, doc("Size of the last dimension.", unit="units")] = UNSET
    histogram: Annotated[Histogram | UnsetType, doc("Distribution of the elements.")] = UNSET
    nonfinite_count: Annotated[Count | UnsetType, doc("Elements that are NaN or infinite.", unit="elements")] = UNSET
    sampled: Annotated[
        Count | UnsetType,
        doc(
            "Number of elements sampled for all statistics but min, max, dead_units and nonfinite_count; absent: all.",
            unit="elements",
        ),
    ] = UNSET


class AttentionStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The attention of one layer, one number per query head."""

    entropy_per_head: Annotated[
        list[Number] | UnsetType, doc("Mean over queries of -sum p log p (F9).", unit="nats", shape="(H,)")
    ] = UNSET
    normalized_entropy_per_head: Annotated[
        list[Number] | UnsetType,
        doc("Mean over queries of the entropy divided by the log of the number of visible keys.", shape="(H,)"),
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
        doc("Mean probability that a query gives to later keys outside its own prefix, 0 to 1.", shape="(H,)"),
    ] = UNSET
    nearest_similarity_per_head: Annotated[
        list[Number] | UnsetType, doc("Cosine similarity to the most similar other head of the layer.", shape="(H,)")
    ] = UNSET
    kind_per_head: Annotated[list[HeadKind] | UnsetType, doc("What the head mostly attends to.", shape="(H,)")] = UNSET
    sampled_qk_grid_32x32_per_head: Annotated[
        PackedGrid | list[Grid] | UnsetType, doc("Probabilities at sampled queries and keys.", shape="(H, 32, 32)")
    ] = UNSET
    sampled_qk_grid_32x32: Annotated[
        PackedGrid | list[Grid] | UnsetType, doc("Another writer's name of sampled_qk_grid_32x32_per_head.", shape="(H, 32, 32)")
    ] = UNSET
    heads: Annotated[Count | UnsetType, doc("Number of query heads.", unit="heads")] = UNSET
    kv_heads: Annotated[Count | UnsetType, doc("Number of key and value heads.", unit="heads")] = UNSET
    keys: Annotated[Count | UnsetType, doc("Largest number of keys that a query may see.", unit="tokens")] = UNSET
    causal: Annotated[bool | UnsetType, doc("Whether a query must not see later keys.")] = UNSET


class MoeStats(Struct, kw_only=True, omit_defaults=True):
    """The routing of one mixture-of-experts layer."""

    counts: Annotated[list[NonNegative] | UnsetType, doc("Tokens routed to each expert.", unit="tokens", shape="(E,)")] = UNSET
    routed: Annotated[NonNegative | UnsetType, doc("Number of token assignments requested.", unit="tokens")] = UNSET
    dropped: Annotated[NonNegative | UnsetType, doc("Number of assignments dropped for lack of capacity.", unit="tokens")] = UNSET
    router_probability: Annotated[
        list[NonNegative] | UnsetType, doc("Mean over tokens of the router's probability of each expert; sum 1.", shape="(E,)")
    ] = UNSET
    aux_loss: Annotated[Number | UnsetType, doc("Load-balance loss (M28), before its coefficient.")] = UNSET


class ProbeStats(Struct, kw_only=True, omit_defaults=True):
    """The model's output for one fixed probe."""

    exact_match: Annotated[NonNegative | UnsetType, doc("Share of tokens that are continued exactly, 0 to 1.")] = UNSET
    overlap: Annotated[NonNegative | UnsetType, doc("Share of tokens in common with the true continuation, 0 to 1.")] = UNSET
    loss: Annotated[Number | UnsetType, doc("Mean negative log likelihood of the true continuation.", unit="nats/token")] = UNSET
    perplexity: Annotated[NonNegative | UnsetType, doc("exp(loss) of the true continuation.")] = UNSET
    entropy: Annotated[
        NonNegative | UnsetType, doc("Mean over positions of -sum p log p of the next-token distribution (M23).", unit="nats")
    ] = UNSET
    shift: Annotated[
        Count | UnsetType, doc("Number of positions by which the tokens of the base probe were shifted (D3.3).", unit="tokens")
    ] = UNSET
    shifted_by: Annotated[
        Literal["position_ids", "prepended"] | UnsetType, doc("Method of the shift: later positions, or prepended tokens.")
    ] = UNSET
    held_out: Annotated[bool | UnsetType, doc("Whether the probe is held out from training.")] = UNSET
    hash: Annotated[str | UnsetType, doc("Hash of the probe's tokens.")] = UNSET


class OptimizerGroup(Struct, kw_only=True, omit_defaults=True):
    """One parameter group."""

    learning_rate: Annotated[Number | UnsetType, doc("Learning rate used by this step's update.")] = UNSET
    weight_decay: Annotated[Number | UnsetType, doc("Weight decay.")] = UNSET
    tensors: Annotated[Count | UnsetType, doc("Tensors in the group.", unit="tensors")] = UNSET


class OptimizerState(Struct, kw_only=True, omit_defaults=True):
    """The optimizer and the loss scaler after this step."""

    name: Annotated[str | UnsetType, doc("Class of the optimizer.")] = UNSET
    groups: Annotated[list[OptimizerGroup] | UnsetType, doc("Parameter groups, in the optimizer's order.", shape="(G,)")] = UNSET
    trainable_without_optimizer: Annotated[
        list[str] | UnsetType, doc("Trainable tensors that are in no parameter group.", shape="(P,)")
    ] = UNSET
    written: Annotated[
        list[str] | UnsetType,
        doc(
            "Tensors that torch saw modified between two updates since the last checkpoint, if such changes are rare.",
            shape="(P,)",
        ),
    ] = UNSET
    state_finite: Annotated[bool | UnsetType, doc("Whether every sampled moment is finite (M12).")] = UNSET
    epsilon: Annotated[
        NonNegative | UnsetType, doc("The constant added to the root of the second moment; the largest of all groups.")
    ] = UNSET
    clip_norm: Annotated[NonNegative | UnsetType, doc("Maximum global gradient norm of clipping.")] = UNSET
    gradient_norm: Annotated[
        Number | UnsetType, doc("L2 norm of all gradients that the optimizer received, after any clipping.")
    ] = UNSET
    clip_coefficient: Annotated[NonNegative | UnsetType, doc("Factor that clipping multiplied the gradients by, 0 to 1.")] = UNSET
    loss_scale: Annotated[NonNegative | UnsetType, doc("Scale of the loss under mixed precision (M13).")] = UNSET
    found_inf: Annotated[
        bool | UnsetType, doc("Whether the scaler detected an overflow, so that the update was skipped (M15).")
    ] = UNSET


class BatchFacts(Struct, kw_only=True, omit_defaults=True):
    """The batch of this step."""

    input_hash: Annotated[str | UnsetType, doc("Hash of the input tokens.")] = UNSET
    batch_id: Annotated[str | int | UnsetType, doc("Name of the batch in the data loader.")] = UNSET
    source: Annotated[str | UnsetType, doc("The source of the batch.")] = UNSET
    target_shift_match: Annotated[NonNegative | UnsetType, doc("Share of targets equal to the next input, 0 to 1.")] = UNSET
    embedded_shift_match: Annotated[
        NonNegative | UnsetType, doc("Share of targets equal to the next token that an embedding reads, 0 to 1; the largest.")
    ] = UNSET
    target_equals_input: Annotated[NonNegative | UnsetType, doc("Share of targets equal to their own input, 0 to 1.")] = UNSET
    target_equals_embedded: Annotated[
        NonNegative | UnsetType,
        doc("Share of targets equal to the token that an embedding reads at the same position, 0 to 1; the largest."),
    ] = UNSET
    duplicate_share: Annotated[
        NonNegative | UnsetType, doc("Share of rows (sequences or images) equal to an earlier row of the same batch, 0 to 1.")
    ] = UNSET
    token_histogram: Annotated[
        list[NonNegative] | UnsetType, doc("Number of tokens in each bucket of the vocabulary.", shape="(B,)")
    ] = UNSET
    input_mean: Annotated[Number | UnsetType, doc("Mean of numeric inputs, such as images.")] = UNSET
    input_std: Annotated[NonNegative | UnsetType, doc("Population standard deviation of numeric inputs.")] = UNSET


class History(Struct, kw_only=True, omit_defaults=True):
    """Black box: the last steps before this one, oldest first, one column each."""

    steps: Annotated[list[Step], doc("The steps in the black box.", unit="steps", shape="(K,)")]
    loss: Annotated[list[Number | None] | UnsetType, doc("Training loss.", unit="nats/token", shape="(K,)")] = UNSET
    learning_rate: Annotated[list[Number | None] | UnsetType, doc("Learning rate of the first group.", shape="(K,)")] = UNSET
    batch_hash: Annotated[list[str | None] | UnsetType, doc("Hash of each batch.", shape="(K,)")] = UNSET
    gradient_norms: Annotated[
        dict[str, list[Number | None]] | UnsetType, doc("Gradient norm of each tensor.", shape="(P, K)")
    ] = UNSET
    update_norms: Annotated[dict[str, list[Number | None]] | UnsetType, doc("Update norm of each tensor.", shape="(P, K)")] = (
        UNSET
    )


class Cost(Struct, kw_only=True, omit_defaults=True):
    """The cost of writing this checkpoint for the training."""

    ms: Annotated[NonNegative | UnsetType, doc("Time that writing took inside the step.", unit="ms")] = UNSET
    step_share: Annotated[NonNegative | UnsetType, doc("`ms` divided by the duration of a step.")] = UNSET
    share: Annotated[
        NonNegative | UnsetType,
        doc("Share of the time since the last checkpoint that recording took: this checkpoint and every step since; 0 to 1."),
    ] = UNSET


class RankFacts(Struct, kw_only=True, omit_defaults=True):
    """Facts that only one rank knows."""

    step_time: Annotated[
        NonNegative | UnsetType,
        doc("Duration of a step, without the time spent waiting for other ranks if that is known.", unit="s"),
    ] = UNSET
    input_time: Annotated[NonNegative | UnsetType, doc("Time spent waiting for data before the forward pass.", unit="s")] = UNSET
    compute_time: Annotated[NonNegative | UnsetType, doc("Time spent computing.", unit="s")] = UNSET
    comm_time: Annotated[NonNegative | UnsetType, doc("Time spent communicating.", unit="s")] = UNSET
    parameter_hash: Annotated[str | UnsetType, doc("Hash of all parameters that every rank holds completely.")] = UNSET
    data_hash: Annotated[str | UnsetType, doc("Hash of this rank's batch.")] = UNSET
    heartbeat: Annotated[NonNegative | UnsetType, doc("Unix time when the rank was last known to be alive.", unit="s")] = UNSET
    memory_used: Annotated[Count | UnsetType, doc("Device memory in use.", unit="bytes")] = UNSET


class Parity(Struct, kw_only=True, omit_defaults=True):
    """This implementation compared with a reference one, on the same batch (D1.4)."""

    loss_diff: Annotated[NonNegative | UnsetType, doc("Absolute difference of the losses.", unit="nats/token")] = UNSET
    param_diff: Annotated[NonNegative | UnsetType, doc("Largest absolute difference of a parameter.")] = UNSET
    relative_param_diff: Annotated[NonNegative | UnsetType, doc("param_diff divided by the parameter's largest magnitude.")] = (
        UNSET
    )
    worst_tensor: Annotated[str | UnsetType, doc("Parameter with the largest difference, `param_diff`.")] = UNSET
    reference: Annotated[str | UnsetType, doc("Name of the reference implementation.")] = UNSET
    gradient_error: Annotated[
        NonNegative | UnsetType,
        doc("Largest difference of a gradient from central differences, relative to the larger of both (MAP-2), 0 to 2."),
    ] = UNSET
    gradient_worst_tensor: Annotated[str | UnsetType, doc("Tensor with the largest `gradient_error`.")] = UNSET


class Replay(Struct, kw_only=True, omit_defaults=True):
    """A second run of the same steps from the same state (D1.6)."""

    identical: Annotated[bool | UnsetType, doc("Whether every bit was equal.")] = UNSET
    steps: Annotated[Count | UnsetType, doc("Number of steps replayed.", unit="steps")] = UNSET
    first_difference: Annotated[Step | UnsetType, doc("First step that differed.", unit="steps")] = UNSET
    loss_diff: Annotated[NonNegative | UnsetType, doc("Largest absolute difference of the losses.", unit="nats/token")] = UNSET


class Checkpoint(Struct, kw_only=True, omit_defaults=True):
    """Statistics of one training step. Fields that this version does not know are kept and counted, never an error."""

    schema_version: Annotated[Literal["ck.analysis.v1"], doc("Version of the contract that this file follows.")]
    step: Annotated[Step, doc("Number of update attempts completed.", unit="steps")]
    loss: Annotated[Number | UnsetType, doc("Training loss of this step, mean over non-pad targets.", unit="nats/token")] = UNSET
    model_scale_hint: Annotated[str | UnsetType, doc("Size and family of the model, as free text.")] = UNSET
    time: Annotated[NonNegative | UnsetType, doc("When the step ended, Unix time.", unit="s")] = UNSET
    session: Annotated[Count | UnsetType, doc("Number of the session that wrote this file; increases by one at each resume.")] = (
        UNSET
    )
    triggers: Annotated[list[Trigger] | UnsetType, doc("What triggered this checkpoint.")] = UNSET
    event_step: Annotated[Step | UnsetType, doc("The step whose event triggered this checkpoint.", unit="steps")] = UNSET
    rank: Annotated[Count | UnsetType, doc("Rank that wrote the file; absent: the merged file.")] = UNSET
    gradients_source: Annotated[GradientsSource | UnsetType, doc("Point in the step at which the gradients were read.")] = UNSET
    scalars: Annotated[dict[str, Number] | UnsetType, doc("Values of this step by their catalogue name.")] = UNSET
    weights: Annotated[dict[str, WeightStats] | UnsetType, doc("Weights by tensor name.")] = UNSET
    gradients: Annotated[dict[str, GradientStats] | UnsetType, doc("Gradients by tensor name.")] = UNSET
    weight_deltas: Annotated[dict[str, DeltaStats] | UnsetType, doc("Movement of the weights by tensor name.")] = UNSET
    activations: Annotated[dict[str, ActivationStats] | UnsetType, doc("Module outputs by module name.")] = UNSET
    attention: Annotated[dict[str, AttentionStats] | UnsetType, doc("Attention by layer name.")] = UNSET
    optimizer: Annotated[OptimizerState | UnsetType, doc("Optimizer and loss scaler.")] = UNSET
    data: Annotated[BatchFacts | UnsetType, doc("The batch.")] = UNSET
    loss_function: Annotated[LossFunctionStats | UnsetType, doc("Inputs and value of the loss function.")] = UNSET
    loss_terms: Annotated[
        dict[str, LossTermStats] | UnsetType,
        doc("Loss functions that a step calls for parts of its loss, if several, by name and classes: mse_loss/4."),
    ] = UNSET
    moe: Annotated[dict[str, MoeStats] | UnsetType, doc("Expert routing by layer name.")] = UNSET
    probes: Annotated[dict[str, ProbeStats] | UnsetType, doc("Fixed probes by name.")] = UNSET
    parity: Annotated[Parity | UnsetType, doc("Comparison with a reference implementation.")] = UNSET
    replay: Annotated[Replay | UnsetType, doc("Comparison with a second run of the same steps.")] = UNSET
    history: Annotated[History | UnsetType, doc("The last steps before this one.")] = UNSET
    rank_facts: Annotated[RankFacts | UnsetType, doc("Facts that only this rank knows.")] = UNSET
    cost: Annotated[Cost | UnsetType, doc("Cost of writing this file.")] = UNSET
    left_out: Annotated[
        list[str] | UnsetType, doc("Paths that a size budget omitted from some or all entries, such as weights.*.histogram.")
    ] = UNSET
