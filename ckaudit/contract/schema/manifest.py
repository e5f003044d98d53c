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

    depth: Annotated[Count | UnsetType, doc("Index of its block from the input; absent outside the blocks.")] = UNSET
    block: Annotated[str | UnsetType, doc("Name of its block's module, such as encoder.layer.3; absent outside the blocks.")] = (
        UNSET
    )
    kind: Annotated[TensorKind | UnsetType, doc("Its part in the model.")] = UNSET
    module: Annotated[str | UnsetType, doc("Name of the module that owns it.")] = UNSET
    shape: Annotated[list[Count] | UnsetType, doc("Size along each dimension.", unit="elements", shape="(D,)")] = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type.")] = UNSET
    trainable: Annotated[bool | UnsetType, doc("Whether it takes a gradient.")] = UNSET
    no_gradient: Annotated[
        NoGradient | UnsetType,
        doc(
            "Why no gradient is to be expected: it shifts all logits of a softmax alike, a normalization takes it out, it is a "
            "fixed table of sinusoids, or the forward pass does not use its part of the model; absent: nothing says so."
        ),
    ] = UNSET
    stride: Annotated[Count | UnsetType, doc("Every how many elements the reference values were taken.", unit="elements")] = UNSET
    device: Annotated[str | UnsetType, doc("Where it lives.")] = UNSET
    tied_to: Annotated[str | UnsetType, doc("Name of the tensor that shares its storage.")] = UNSET
    operator: Annotated[str | UnsetType, doc("Forward operator that reads it.")] = UNSET
    backward: Annotated[str | UnsetType, doc("Node of the backward graph that fills its gradient.")] = UNSET
    kernels: Annotated[list[str] | UnsetType, doc("Kernels that ran in one profiled step.")] = UNSET


class Session(Struct, kw_only=True, omit_defaults=True):
    """One start of the run."""

    start: Annotated[NonNegative | UnsetType, doc("When it started, Unix time.", unit="s")] = UNSET
    end: Annotated[NonNegative | UnsetType, doc("When it ended, Unix time; absent: it was cut off.", unit="s")] = UNSET
    commit: Annotated[str | UnsetType, doc("Version of the training code.")] = UNSET
    world_size: Annotated[Count | UnsetType, doc("Processes that trained together.", unit="ranks")] = UNSET
    node: Annotated[str | UnsetType, doc("Name of the machine on which rank 0 ran.")] = UNSET
    accelerator: Annotated[str | UnsetType, doc("Kind and unique number of rank 0's accelerator; absent: none.")] = UNSET
    resumed_from: Annotated[Step | UnsetType, doc("Step of the resume checkpoint.", unit="steps")] = UNSET
    weight_norms: Annotated[
        dict[str, Number] | UnsetType, doc("Frobenius norm of each weight tensor before the first update of a resume.")
    ] = UNSET
    optimizer_restored: Annotated[
        bool | UnsetType,
        doc("Whether the optimizer held any state before the first update of a resume; absent: it keeps none, or nobody looked."),
    ] = UNSET
    checkpoint_ok: Annotated[bool | UnsetType, doc("Whether every file of the session was written whole (M61).")] = UNSET
    write_errors: Annotated[
        Count | UnsetType,
        doc(
            "Failures that cost a file, a checkpoint or a line; without `look_errors`, all of the recorder's own.", unit="events"
        ),
    ] = UNSET
    first_write_error: Annotated[str | UnsetType, doc("The first of them in words.")] = UNSET
    look_errors: Annotated[
        Count | UnsetType,
        doc("Failures to look at a part of the training, which is not recorded then; files are whole.", unit="events"),
    ] = UNSET
    first_look_error: Annotated[str | UnsetType, doc("The first of them in words.")] = UNSET


class Cadence(Struct, kw_only=True):
    """A range of steps with the same distance between checkpoints."""

    until: Annotated[Step | None, doc("Last step of the stretch; null: to the end.", unit="steps")]
    every: Annotated[Count, doc("Distance between checkpoints.", unit="steps")]


class Triggers(Struct, kw_only=True, omit_defaults=True):
    """The conditions that trigger a checkpoint outside the cadence."""

    loss_spike_factor: Annotated[NonNegative | UnsetType, doc("Loss over its moving average.")] = UNSET
    grad_norm_factor: Annotated[NonNegative | UnsetType, doc("Global gradient norm over the median of the last 100.")] = UNSET
    dead_gradient_norm: Annotated[NonNegative | UnsetType, doc("A tensor's gradient norm below this is dead.")] = UNSET


class Manifest(Struct, kw_only=True, omit_defaults=True):
    """One run. All parts are optional except the version; a missing part is reported where it would have been needed."""

    schema_version: Annotated[Literal["ck.run.v1"], doc("Which contract this file follows.")]
    name: Annotated[str | UnsetType, doc("The run's own name.")] = UNSET
    source: Annotated[str | UnsetType, doc("What wrote the run, or what it was imported from.")] = UNSET
    notes: Annotated[list[str] | UnsetType, doc("What a reader must know of how it was imported; one sentence each.")] = UNSET
    trainer: Annotated[
        str | UnsetType, doc("Whose loop trains: lightning or huggingface; absent: the program's own, or not known.")
    ] = UNSET
    config: Annotated[dict[str, Any] | UnsetType, doc("The training configuration, as the user gave it.")] = UNSET
    model: Annotated[dict[str, Any] | UnsetType, doc("The model configuration (MAN-2).")] = UNSET
    model_scale_hint: Annotated[str | UnsetType, doc("Size and family of the model, in words.")] = UNSET
    parameters: Annotated[Count | UnsetType, doc("Trainable parameters, a shared one counted once.", unit="elements")] = UNSET
    dropout: Annotated[
        NonNegative | UnsetType, doc("Largest probability of dropout among the modules, 0 where none drops.", unit="1")
    ] = UNSET
    dropout_module: Annotated[str | UnsetType, doc("The first module that has it.")] = UNSET
    batch_norm_batches: Annotated[
        Count | UnsetType, doc("Batches that batch norm had taken statistics of when recording started.", unit="batches")
    ] = UNSET
    seed: Annotated[int | UnsetType, doc("Seed of the run.")] = UNSET
    vocabulary: Annotated[Count | UnsetType, doc("Size of the vocabulary.", unit="tokens")] = UNSET
    sequence_length: Annotated[Count | UnsetType, doc("Tokens in one sequence.", unit="tokens")] = UNSET
    commit: Annotated[str | UnsetType, doc("Version of the training code (MAN-1).")] = UNSET
    lock_hash: Annotated[str | UnsetType, doc("Hash of the lock file, or of the list of installed packages (MAN-1).")] = UNSET
    environment: Annotated[
        dict[str, str] | UnsetType, doc("Versions of what the run stands on: python, torch, cuda, ... (MAN-1).")
    ] = UNSET
    tokenizer_hash: Annotated[str | UnsetType, doc("Hash of the tokenizer (MAN-3).")] = UNSET
    eval_artifact_hashes: Annotated[dict[str, str] | UnsetType, doc("Hash of each evaluation artifact (MAN-5).")] = UNSET
    decoding: Annotated[
        dict[str, Any] | UnsetType, doc("How evaluations decode: temperature, top_p, longest answer, ... (MAN-5).")
    ] = UNSET
    data_manifest: Annotated[dict[str, Any] | UnsetType, doc("Shards, filters and deduplication (MAN-4).")] = UNSET
    cadence: Annotated[list[Cadence] | UnsetType, doc("When checkpoints were due, in order of steps.")] = UNSET
    triggers: Annotated[Triggers | UnsetType, doc("What else asked for one.")] = UNSET
    slices: Annotated[list[str] | UnsetType, doc("Named parts of the evaluation.")] = UNSET
    tau_slices: Annotated[
        tuple[str, str] | UnsetType, doc("The easy and the hard slice that tau compares; absent: regular and irregular.")
    ] = UNSET
    flops_per_token: Annotated[NonNegative | UnsetType, doc("Work of one token, forward and backward.", unit="FLOP")] = UNSET
    peak_flops: Annotated[NonNegative | UnsetType, doc("Peak of all devices together.", unit="FLOP/s")] = UNSET
    warmup_steps: Annotated[Count | UnsetType, doc("Steps of planned warm-up.", unit="steps")] = UNSET
    planned_steps: Annotated[Count | UnsetType, doc("Steps the run was to take.", unit="steps")] = UNSET
    planned_learning_rate: Annotated[
        list[list[Number]] | UnsetType, doc("Planned learning rate as [step, value] pairs, linear between.", shape="(K, 2)")
    ] = UNSET
    loss_ema_beta: Annotated[
        NonNegative | UnsetType, doc("What the logged average of the loss keeps of its last value (M04).")
    ] = UNSET
    clip_norm: Annotated[NonNegative | UnsetType, doc("Largest global gradient norm let through.")] = UNSET
    world_size: Annotated[Count | UnsetType, doc("Processes that train together.", unit="ranks")] = UNSET
    tensors: Annotated[dict[str, TensorFacts] | UnsetType, doc("Every parameter tensor, in the order of the forward pass.")] = (
        UNSET
    )
    attention: Annotated[
        dict[str, AttentionDirection] | UnsetType,
        doc("Which way the attention of each layer is to look, by the names of the checkpoints; one left out is not known."),
    ] = UNSET
    loss_kind: Annotated[
        LossKind | UnsetType,
        doc("What one unit of the training loss is: a mean of nats over tokens, or something else; absent: not known."),
    ] = UNSET
    step_unit: Annotated[
        StepUnit | UnsetType,
        doc("What one step is where it is no update: an epoch, or an entry of a log that names neither; absent: an update."),
    ] = UNSET
    takes_turns: Annotated[
        bool | UnsetType,
        doc(
            "Whether several optimizers update in turn, each after a backward pass of its own, as of losses that play against "
            "each other."
        ),
    ] = UNSET
    reinforcement_learning: Annotated[
        bool | UnsetType,
        doc(
            "Whether what the model does makes the data that it learns from, as the rollouts of a policy; absent: told by the "
            "names of its tensors."
        ),
    ] = UNSET
    sessions: Annotated[list[Session] | UnsetType, doc("One entry per start, oldest first.")] = UNSET

    @property
    def has_ended(self) -> bool:
        """Whether the last session has recorded its end."""
        sessions = self.sessions or []
        return bool(sessions) and sessions[-1].end is not UNSET
