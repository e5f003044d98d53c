"""`ck.analysis.v1`: one checkpoint of statistics, the file `analysis_checkpoint_step_00000500.json`.

Step N counts finished update attempts. Loss, gradients, activations and attention are those of attempt N, computed
on the weights left by attempt N-1; weights and their movement are measured after it. Step 0 has no update.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.model_sections import ActivationStats, AttentionStats, MoeStats, ProbeStats
from ckaudit.contract.schema.numbers import Count, NonNegative, Number, Step, doc
from ckaudit.contract.schema.run_sections import BatchFacts, Cost, History, OptimizerState, Parity, RankFacts, Replay
from ckaudit.contract.schema.tensors import DeltaStats, GradientStats, WeightStats

VERSION = "ck.analysis.v1"

Trigger = Literal["cadence", "loss_spike", "grad_norm", "dead_parameter", "nonfinite", "manual", "first", "last"]
PLANNED = frozenset({"cadence", "first", "last"})
"""Triggers that are no event; any other word is one, also of somebody's own."""

GradientsSource = Literal["pre_clip", "rescaled", "post_clip"]


class Checkpoint(Struct, kw_only=True, omit_defaults=True):
    """Statistics of one training step. Fields that this version does not know are kept and counted, never an error."""

    schema_version: Annotated[Literal["ck.analysis.v1"], doc("Which contract this file follows.")]
    step: Annotated[Step, doc("Update attempts finished.", unit="steps")]
    loss: Annotated[Number | UnsetType, doc("Training loss of this step, mean over non-pad targets.", unit="nats/token")] = UNSET
    model_scale_hint: Annotated[str | UnsetType, doc("Size and family of the model, in words.")] = UNSET
    time: Annotated[NonNegative | UnsetType, doc("When the step ended, Unix time.", unit="s")] = UNSET
    session: Annotated[Count | UnsetType, doc("Which start of the run wrote this; rises by one at each resume.")] = UNSET
    triggers: Annotated[list[Trigger] | UnsetType, doc("Why this checkpoint was taken.")] = UNSET
    event_step: Annotated[Step | UnsetType, doc("The step whose event asked for this checkpoint.", unit="steps")] = UNSET
    rank: Annotated[Count | UnsetType, doc("Rank that wrote the file; absent: the merged file.")] = UNSET
    gradients_source: Annotated[GradientsSource | UnsetType, doc("Where in the step the gradients were read.")] = UNSET
    scalars: Annotated[dict[str, Number] | UnsetType, doc("Values of this step by their catalogue name.")] = UNSET
    weights: Annotated[dict[str, WeightStats] | UnsetType, doc("Weights by tensor name.")] = UNSET
    gradients: Annotated[dict[str, GradientStats] | UnsetType, doc("Gradients by tensor name.")] = UNSET
    weight_deltas: Annotated[dict[str, DeltaStats] | UnsetType, doc("Movement of the weights by tensor name.")] = UNSET
    activations: Annotated[dict[str, ActivationStats] | UnsetType, doc("Module outputs by module name.")] = UNSET
    attention: Annotated[dict[str, AttentionStats] | UnsetType, doc("Attention by layer name.")] = UNSET
    optimizer: Annotated[OptimizerState | UnsetType, doc("Optimizer and loss scaler.")] = UNSET
    data: Annotated[BatchFacts | UnsetType, doc("The batch.")] = UNSET
    moe: Annotated[dict[str, MoeStats] | UnsetType, doc("Expert routing by layer name.")] = UNSET
    probes: Annotated[dict[str, ProbeStats] | UnsetType, doc("Fixed probes by name.")] = UNSET
    parity: Annotated[Parity | UnsetType, doc("Comparison with a reference implementation.")] = UNSET
    replay: Annotated[Replay | UnsetType, doc("Comparison with a second run of the same steps.")] = UNSET
    history: Annotated[History | UnsetType, doc("The last steps before this one.")] = UNSET
    rank_facts: Annotated[RankFacts | UnsetType, doc("What only this rank knows.")] = UNSET
    cost: Annotated[Cost | UnsetType, doc("What writing this file cost.")] = UNSET
    left_out: Annotated[
        list[str] | UnsetType, doc("Paths that a size budget left out of some entries or all, such as weights.*.histogram.")
    ] = UNSET
