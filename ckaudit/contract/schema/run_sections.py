"""Sections of a checkpoint about the training itself: optimizer, data, history, cost, ranks, parity and replay."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Number, Step, doc


class OptimizerGroup(Struct, kw_only=True, omit_defaults=True):
    """One parameter group."""

    learning_rate: Annotated[Number | UnsetType, doc("Learning rate used by this step's update.")] = UNSET
    weight_decay: Annotated[Number | UnsetType, doc("Weight decay.")] = UNSET
    tensors: Annotated[Count | UnsetType, doc("Tensors in the group.", unit="tensors")] = UNSET


class OptimizerState(Struct, kw_only=True, omit_defaults=True):
    """The optimizer and the loss scaler after this step."""

    name: Annotated[str | UnsetType, doc("Class of the optimizer.")] = UNSET
    groups: Annotated[list[OptimizerGroup] | UnsetType, doc("Parameter groups, in the optimizer's order.", shape="(G,)")] = UNSET
    trainable_without_optimizer: Annotated[list[str] | UnsetType, doc("Trainable tensors that no group holds.", shape="(P,)")] = (
        UNSET
    )
    state_finite: Annotated[bool | UnsetType, doc("Whether every sampled moment is finite (M12).")] = UNSET
    clip_norm: Annotated[NonNegative | UnsetType, doc("Largest global gradient norm let through.")] = UNSET
    clip_coefficient: Annotated[NonNegative | UnsetType, doc("Factor that clipping multiplied the gradients by, 0 to 1.")] = UNSET
    loss_scale: Annotated[NonNegative | UnsetType, doc("Scale of the loss under mixed precision (M13).")] = UNSET
    found_inf: Annotated[bool | UnsetType, doc("Whether the scaler saw an overflow, so that the update was skipped (M15).")] = (
        UNSET
    )


class BatchFacts(Struct, kw_only=True, omit_defaults=True):
    """The batch of this step."""

    input_hash: Annotated[str | UnsetType, doc("Hash of the input tokens.")] = UNSET
    batch_id: Annotated[str | int | UnsetType, doc("The loader's own name of the batch.")] = UNSET
    source: Annotated[str | UnsetType, doc("Where the batch came from.")] = UNSET
    target_shift_match: Annotated[NonNegative | UnsetType, doc("Share of targets equal to the next input, 0 to 1.")] = UNSET
    target_equals_input: Annotated[NonNegative | UnsetType, doc("Share of targets equal to their own input, 0 to 1.")] = UNSET
    duplicate_share: Annotated[
        NonNegative | UnsetType, doc("Share of sequences equal to an earlier one of the same batch, 0 to 1.")
    ] = UNSET
    token_histogram: Annotated[list[NonNegative] | UnsetType, doc("Tokens in each bucket of the vocabulary.", shape="(B,)")] = (
        UNSET
    )


class History(Struct, kw_only=True, omit_defaults=True):
    """Black box: the last steps before this one, oldest first, a column each."""

    steps: Annotated[list[Step], doc("Steps held.", unit="steps", shape="(K,)")]
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
    """What writing this checkpoint cost the training."""

    ms: Annotated[NonNegative | UnsetType, doc("Time taken inside the step.", unit="ms")] = UNSET
    step_share: Annotated[NonNegative | UnsetType, doc("ms over the duration of a step.")] = UNSET
    share: Annotated[
        NonNegative | UnsetType,
        doc("Share of the time since the checkpoint before that recording took: that checkpoint, and every step since; 0 to 1."),
    ] = UNSET


class RankFacts(Struct, kw_only=True, omit_defaults=True):
    """What only one rank knows."""

    step_time: Annotated[
        NonNegative | UnsetType, doc("Duration of a step, less waiting for other ranks where known.", unit="s")
    ] = UNSET
    input_time: Annotated[NonNegative | UnsetType, doc("Time before the forward pass, waiting for data.", unit="s")] = UNSET
    compute_time: Annotated[NonNegative | UnsetType, doc("Computing.", unit="s")] = UNSET
    comm_time: Annotated[NonNegative | UnsetType, doc("Communicating.", unit="s")] = UNSET
    parameter_hash: Annotated[str | UnsetType, doc("Hash of all parameters that every rank holds whole.")] = UNSET
    data_hash: Annotated[str | UnsetType, doc("Hash of this rank's batch.")] = UNSET
    heartbeat: Annotated[NonNegative | UnsetType, doc("Unix time when the rank was last alive.", unit="s")] = UNSET
    memory_used: Annotated[Count | UnsetType, doc("Device memory in use.", unit="bytes")] = UNSET


class Parity(Struct, kw_only=True, omit_defaults=True):
    """This implementation against a reference one, on the same batch (D1.4)."""

    loss_diff: Annotated[NonNegative | UnsetType, doc("Absolute difference of the losses.", unit="nats/token")] = UNSET
    param_diff: Annotated[NonNegative | UnsetType, doc("Largest absolute difference of a parameter.")] = UNSET
    relative_param_diff: Annotated[NonNegative | UnsetType, doc("param_diff over the parameter's largest magnitude.")] = UNSET
    worst_tensor: Annotated[str | UnsetType, doc("Where param_diff was found.")] = UNSET
    reference: Annotated[str | UnsetType, doc("Name of the reference implementation.")] = UNSET
    gradient_error: Annotated[
        NonNegative | UnsetType,
        doc("Largest difference of a gradient from central differences, over the larger (MAP-2), 0 to 2."),
    ] = UNSET
    gradient_worst_tensor: Annotated[str | UnsetType, doc("Where gradient_error was found.")] = UNSET


class Replay(Struct, kw_only=True, omit_defaults=True):
    """A second run of the same steps from the same state (D1.6)."""

    identical: Annotated[bool | UnsetType, doc("Whether every bit agreed.")] = UNSET
    steps: Annotated[Count | UnsetType, doc("Steps replayed.", unit="steps")] = UNSET
    first_difference: Annotated[Step | UnsetType, doc("First step that disagreed.", unit="steps")] = UNSET
    loss_diff: Annotated[NonNegative | UnsetType, doc("Largest absolute difference of the losses.", unit="nats/token")] = UNSET
