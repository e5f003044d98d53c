"""`ck.run.v1`: the facts of a run, the file `run.json`."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Number, Step, doc

VERSION = "ck.run.v1"

AttentionDirection = Literal["causal", "bidirectional", "cross", "prefix"]
NoGradient = Literal["key_bias", "taken_out_by_norm", "fixed_table", "unused"]
LossKind = Literal["nats_per_token", "other"]
StepUnit = Literal["epoch", "entry"]
TensorKind = Literal["embedding", "attention", "mlp", "norm", "head", "router", "conv", "recurrent", "other"]


class TensorFacts(Struct, kw_only=True, omit_defaults=True):
    """The kind of one parameter tensor, and its place in the model."""

    depth: Annotated[
        Count | UnsetType, doc("Index of the tensor's block, counted from the input; absent outside the blocks.")
    ] = UNSET
    block: Annotated[
        str | UnsetType, doc("Module name of the tensor's block, such as encoder.layer.3; absent outside the blocks.")
    ] = UNSET
    kind: Annotated[TensorKind | UnsetType, doc("Role of the tensor in the model.")] = UNSET
    module: Annotated[str | UnsetType, doc("Name of the module that owns the tensor.")] = UNSET
    shape: Annotated[list[Count] | UnsetType, doc("Size along each dimension.", unit="elements", shape="(D,)")] = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type.")] = UNSET
    trainable: Annotated[bool | UnsetType, doc("Whether the tensor requires a gradient.")] = UNSET
    no_gradient: Annotated[
        NoGradient | UnsetType,
        doc(
            "Why no gradient is expected: the tensor shifts all logits of a softmax equally, a normalization removes "
            "its effect, it is a fixed table of sinusoids, or the forward pass does not use its part of the model; "
            "absent: no such reason is known."
        ),
    ] = UNSET
    stride: Annotated[Count | UnsetType, doc("Distance in elements between the reference values.", unit="elements")] = UNSET
    device: Annotated[str | UnsetType, doc("Device of the tensor.")] = UNSET
    tied_to: Annotated[str | UnsetType, doc("Name of the tensor whose storage this tensor shares.")] = UNSET
    operator: Annotated[str | UnsetType, doc("Forward operator that reads the tensor.")] = UNSET
    backward: Annotated[str | UnsetType, doc("Node of the backward graph that writes its gradient.")] = UNSET
    kernels: Annotated[list[str] | UnsetType, doc("Kernels that ran in one profiled step.")] = UNSET


class Session(Struct, kw_only=True, omit_defaults=True):
    """One start of the run."""

    start: Annotated[NonNegative | UnsetType, doc("When the session started, Unix time.", unit="s")] = UNSET
    end: Annotated[NonNegative | UnsetType, doc("When the session ended, Unix time; absent: it was cut off.", unit="s")] = UNSET
    commit: Annotated[str | UnsetType, doc("Version of the training code.")] = UNSET
    world_size: Annotated[Count | UnsetType, doc("Number of processes that trained together.", unit="ranks")] = UNSET
    node: Annotated[str | UnsetType, doc("Name of the machine on which rank 0 ran.")] = UNSET
    accelerator: Annotated[str | UnsetType, doc("Kind and unique number of rank 0's accelerator; absent: no accelerator.")] = (
        UNSET
    )
    resumed_from: Annotated[Step | UnsetType, doc("Step of the checkpoint that the session resumed from.", unit="steps")] = UNSET
    weight_norms: Annotated[
        dict[str, Number] | UnsetType, doc("Frobenius norm of each weight tensor before the first update of a resume.")
    ] = UNSET
    optimizer_restored: Annotated[
        bool | UnsetType,
        doc(
            "Whether the optimizer had any state before the first update of a resume; absent: it keeps none, or this "
            "was not checked."
        ),
    ] = UNSET
    checkpoint_ok: Annotated[bool | UnsetType, doc("Whether every file of the session was written completely (M61).")] = UNSET
    write_errors: Annotated[
        Count | UnsetType,
        doc(
            "Number of failures that lost a file, a checkpoint or a line; without `look_errors`, all failures of the "
            "recorder itself.",
            unit="events",
        ),
    ] = UNSET
    first_write_error: Annotated[str | UnsetType, doc("The first write error in words.")] = UNSET
    look_errors: Annotated[
        Count | UnsetType,
        doc(
            "Number of failures to inspect a part of the training, which is then not recorded; the files are complete.",
            unit="events",
        ),
    ] = UNSET
    first_look_error: Annotated[str | UnsetType, doc("The first of these failures in words.")] = UNSET


class Cadence(Struct, kw_only=True):
    """A range of steps with the same distance between checkpoints."""

    until: Annotated[Step | None, doc("Last step of the range; null: to the end.", unit="steps")]
    every: Annotated[Count, doc("Distance between checkpoints.", unit="steps")]


class Triggers(Struct, kw_only=True, omit_defaults=True):
    """The conditions that trigger a checkpoint outside the cadence."""

    loss_spike_factor: Annotated[NonNegative | UnsetType, doc("Loss divided by its moving average.")] = UNSET
    grad_norm_factor: Annotated[NonNegative | UnsetType, doc("Global gradient norm divided by the median of the last 100.")] = (
        UNSET
    )
    dead_gradient_norm: Annotated[
        NonNegative | UnsetType, doc("The gradient of a tensor is dead if its norm is below this value.")
    ] = UNSET


class Manifest(Struct, kw_only=True, omit_defaults=True):
    """One run. All parts are optional except the version; a missing part is reported where it would have been needed."""

    schema_version: Annotated[Literal["ck.run.v1"], doc("Version of the contract that this file follows.")]
    name: Annotated[str | UnsetType, doc("Name of the run.")] = UNSET
    source: Annotated[str | UnsetType, doc("The program that wrote the run, or the source that it was imported from.")] = UNSET
    notes: Annotated[list[str] | UnsetType, doc("Notes on how the run was imported; one sentence each.")] = UNSET
    trainer: Annotated[
        str | UnsetType,
        doc("The trainer that runs the training loop: lightning or huggingface; absent: the program's own loop, or unknown."),
    ] = UNSET
    config: Annotated[dict[str, Any] | UnsetType, doc("The training configuration, as the user gave it.")] = UNSET
    model: Annotated[dict[str, Any] | UnsetType, doc("The model configuration (MAN-2).")] = UNSET
    model_scale_hint: Annotated[str | UnsetType, doc("Size and family of the model, as free text.")] = UNSET
    parameters: Annotated[
        Count | UnsetType, doc("Number of trainable parameters; a shared parameter counts once.", unit="elements")
    ] = UNSET
    dropout: Annotated[
        NonNegative | UnsetType, doc("Largest dropout probability of all modules; 0 if no module uses dropout.", unit="1")
    ] = UNSET
    dropout_module: Annotated[str | UnsetType, doc("The first module with this dropout probability.")] = UNSET
    batch_norm_batches: Annotated[
        Count | UnsetType,
        doc("Number of batches in the running statistics of batch norm when recording started.", unit="batches"),
    ] = UNSET
    seed: Annotated[int | UnsetType, doc("Seed of the run.")] = UNSET
    vocabulary: Annotated[Count | UnsetType, doc("Size of the vocabulary.", unit="tokens")] = UNSET
    sequence_length: Annotated[Count | UnsetType, doc("Number of tokens in one sequence.", unit="tokens")] = UNSET
    commit: Annotated[str | UnsetType, doc("Version of the training code (MAN-1).")] = UNSET
    lock_hash: Annotated[str | UnsetType, doc("Hash of the lock file, or of the list of installed packages (MAN-1).")] = UNSET
    environment: Annotated[
        dict[str, str] | UnsetType, doc("Versions of the software that the run uses: python, torch, cuda, ... (MAN-1).")
    ] = UNSET
    tokenizer_hash: Annotated[str | UnsetType, doc("Hash of the tokenizer (MAN-3).")] = UNSET
    eval_artifact_hashes: Annotated[dict[str, str] | UnsetType, doc("Hash of each evaluation artifact (MAN-5).")] = UNSET
    decoding: Annotated[
        dict[str, Any] | UnsetType, doc("Decoding settings of evaluations: temperature, top_p, longest answer, ... (MAN-5).")
    ] = UNSET
    data_manifest: Annotated[dict[str, Any] | UnsetType, doc("Shards, filters and deduplication (MAN-4).")] = UNSET
    cadence: Annotated[list[Cadence] | UnsetType, doc("When checkpoints were due, ordered by step.")] = UNSET
    triggers: Annotated[Triggers | UnsetType, doc("Conditions that trigger other checkpoints.")] = UNSET
    slices: Annotated[list[str] | UnsetType, doc("Named slices of the evaluation data.")] = UNSET
    tau_slices: Annotated[
        tuple[str, str] | UnsetType, doc("The easy and the hard slice that tau compares; absent: regular and irregular.")
    ] = UNSET
    flops_per_token: Annotated[
        NonNegative | UnsetType, doc("Floating-point operations per token, forward and backward.", unit="FLOP")
    ] = UNSET
    peak_flops: Annotated[NonNegative | UnsetType, doc("Peak throughput of all devices together.", unit="FLOP/s")] = UNSET
    warmup_steps: Annotated[Count | UnsetType, doc("Number of planned warm-up steps.", unit="steps")] = UNSET
    planned_steps: Annotated[Count | UnsetType, doc("Number of planned steps.", unit="steps")] = UNSET
    planned_learning_rate: Annotated[
        list[list[Number]] | UnsetType,
        doc("Planned learning rate as [step, value] pairs, interpolated linearly.", shape="(K, 2)"),
    ] = UNSET
    loss_ema_beta: Annotated[
        NonNegative | UnsetType,
        doc("Smoothing factor of the logged average of the loss: the share of its last value that it keeps (M04)."),
    ] = UNSET
    clip_norm: Annotated[NonNegative | UnsetType, doc("Maximum global gradient norm of clipping.")] = UNSET
    world_size: Annotated[Count | UnsetType, doc("Number of processes that train together.", unit="ranks")] = UNSET
    tensors: Annotated[dict[str, TensorFacts] | UnsetType, doc("Every parameter tensor, in the order of the forward pass.")] = (
        UNSET
    )
    attention: Annotated[
        dict[str, AttentionDirection] | UnsetType,
        doc("Intended direction of the attention of each layer, by layer name in the checkpoints; a missing layer is unknown."),
    ] = UNSET
    loss_kind: Annotated[
        LossKind | UnsetType, doc("Unit of the training loss: a mean of nats over tokens, or something else; absent: unknown.")
    ] = UNSET
    step_unit: Annotated[
        StepUnit | UnsetType,
        doc("Meaning of one step if it is not an update: an epoch, or an entry of a log that names neither; absent: an update."),
    ] = UNSET
    takes_turns: Annotated[
        bool | UnsetType,
        doc("Whether several optimizers update in turn, each after its own backward pass, as with adversarial losses."),
    ] = UNSET
    reinforcement_learning: Annotated[
        bool | UnsetType,
        doc(
            "Whether the model's own actions generate its training data, as the rollouts of a policy do; absent: "
            "inferred from the names of its tensors."
        ),
    ] = UNSET
    sessions: Annotated[list[Session] | UnsetType, doc("One entry per start, oldest first.")] = UNSET

    @property
    def has_ended(self) -> bool:
        """Whether the last session has recorded its end."""
        sessions = self.sessions or []
        return bool(sessions) and sessions[-1].end is not UNSET
