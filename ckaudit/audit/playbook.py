"""The playbook's tables: a first look at symptoms, the actions for each severity, and the order of work."""

from msgspec import Struct

from ckaudit.contract.schema.report import Severity


class TriageRow(Struct, frozen=True, kw_only=True):
    """One row of the table.

    Attributes:
        row: TRI-1 to TRI-5.
        name: Name in snake_case.
        seen: The symptom, in one sentence.
        behind: Its likeliest cause.
        knob: What to change first.
        inspect: Where to look.
        rules: Names of the rules that detect it.
        causes: Names of the causes that triage weighs for it, the row's own first.
        metrics: Metrics for `ckaudit metrics`.
    """

    row: str
    name: str
    seen: str
    behind: str
    knob: str
    inspect: str
    rules: tuple[str, ...]
    causes: tuple[str, ...]
    metrics: tuple[str, ...]


FIRST_LOOK = (
    TriageRow(
        row="TRI-1",
        name="gradient_pinched_in_the_middle",
        seen="The gradient gets narrow at some block, and little of it reaches the blocks before.",
        behind="The path around the blocks is broken, or a norm or an activation function lets little through.",
        knob="Check the residual path: each block adds to its input; then the initial scale, then the norms' parameters.",
        inspect="Activation statistics of what enters and leaves each block, beside the gradient norm per layer.",
        rules=("vanishing_gradient",),
        causes=("residual_path_broken", "path_pinched", "saturating_activation", "gradient_path_cut"),
        metrics=("block_gradient_norm", "waterfall_ratio", "activation_rms"),
    ),
    TriageRow(
        row="TRI-2",
        name="spike_after_a_calm_time",
        seen="The loss was calm, and jumps.",
        behind="The learning rate is too high for how sharply the loss bends here.",
        knob="Decay the learning rate sooner or lower its peak, or make the warm-up longer.",
        inspect="Size of the weight updates against the gradient norm, from some steps before the jump on.",
        rules=("loss_spike", "loss_rises"),
        causes=("learning_rate_too_high", "missing_warmup", "bad_batch"),
        metrics=("loss_over_median", "update_to_weight_global", "grad_global_norm"),
    ),
    TriageRow(
        row="TRI-3",
        name="clipping_all_the_time",
        seen="The gradient is clipped at most of the steps.",
        behind="One tensor makes up nearly all of the norm that is compared with the limit.",
        knob="Find that tensor; lower its learning rate or scale, or regularise it.",
        inspect="Gradient norm of each tensor, and the outliers of its gradient histogram.",
        rules=("dominant_tensor", "frequent_clipping"),
        causes=("one_tensor_dominates", "clip_limit_too_low", "loss_reduced_by_sum"),
        metrics=("grad_clip_rate", "gradient_share", "clip_coefficient"),
    ),
    TriageRow(
        row="TRI-4",
        name="attention_sharp_too_early",
        seen="Heads look at one token each, long before the model has learnt where to look.",
        behind="The logits of attention are on too large a scale, so that the softmax saturates.",
        knob="Check the QK-norm path and the scale of the logits; then the initial weights, then the learning rate.",
        inspect="Entropy of each head over time, beside its sampled QK grids.",
        rules=("entropy_collapse", "logit_growth"),
        causes=("saturated_attention", "attention_logits_grow", "learning_rate_too_high"),
        metrics=("normalized_attention_entropy", "max_attn_logit", "attn_entropy"),
    ),
    TriageRow(
        row="TRI-5",
        name="some_parameters_hardly_move",
        seen="Some tensors are after many steps nearly where they were, while others have moved.",
        behind="A path is dead or hangs on a thin thread: masked, multiplied by zero, detached, or not in the optimizer.",
        knob="Inspect upstream gradients, from the loss to the first tensor with little; then mask logic and frozen parts.",
        inspect="The ranking of all tensors by relative movement, and the flow of the gradient on either side of the cut.",
        rules=("barely_moving", "layer_not_contributing", "dead_parameter", "frozen_parameter", "starved_branch"),
        causes=("dead_path", "path_weakly_coupled", "not_in_optimizer", "gradient_path_cut", "frozen_by_mistake"),
        metrics=("movement_rank", "relative_movement", "gradient_norm"),
    ),
)


CANARY = "a canary of 200 to 2,000 steps"
"""Updates for which a change is tried (PRB-2)."""

# Actions for each severity, and the conditions for it.
ACTIONS: dict[Severity, str] = {
    "sev0": "stop the training, see that no checkpoint is overwritten, and save the evidence before a restart",
    "sev1": "contain it: lower the learning rate or turn guards on, record more often, and make a rollback ready",
    "sev2": f"investigate: find the shard, rank or layer, and try the remedy on {CANARY}",
    "note": "nothing has to be done now",
}
"""Actions if the cause is unknown."""

WITH_CAUSE: dict[Severity, str] = {
    **ACTIONS,
    "sev1": "contain it: turn the first knob of cause 1, record more often, and make a rollback ready",
    "sev2": f"investigate: try the first knob of cause 1 on {CANARY}",
}
"""Actions if a likely cause names the knob."""


NEWEST = "cause 1 does the weights no harm: the newest checkpoint is good to go on from"
"""Actions if the cause has not harmed the weights."""

NO_BEFORE = "cause 1 is as old as the run: no checkpoint is from before it"
"""Actions if the cause existed from the start."""

OF_RECORDS = "mend the record, or what writes it; nothing that could be read says that the training itself is ill"
"""Actions if all severe findings are about unreadable files."""


class Condition(Struct, frozen=True, kw_only=True):
    """One condition that calls for a severity.

    Attributes:
        row: SEV0-1 and so on.
        name: Name in snake_case.
        title: One sentence.
        severity: The severity.
        rules: Names of the rules that detect it.
    """

    row: str
    name: str
    title: str
    severity: Severity
    rules: tuple[str, ...]


def _condition(row: str, name: str, title: str, *rules: str) -> Condition:
    severity: dict[str, Severity] = {"SEV0": "sev0", "SEV1": "sev1", "SEV2": "sev2"}
    return Condition(row=row, name=name, title=title, severity=severity[row.partition("-")[0]], rules=rules)


CONDITIONS = (
    _condition("SEV0-1", "numbers_not_finite", "A number that is NaN or infinite, once.", "nonfinite_values", "hidden_nonfinite"),
    _condition("SEV0-2", "checkpoint_not_whole", "A checkpoint that was not written whole.", "broken_checkpoint"),
    _condition("SEV0-3", "nobody_watches", "Training goes on and nothing is logged.", "monitoring_blackout"),
    _condition("SEV0-4", "overflow_storm", "The loss scale overflows again and again, for long.", "overflow"),
    _condition("SEV1-1", "repeated_spikes", "The loss spikes repeatedly, or does not come back.", "loss_spike"),
    _condition("SEV1-2", "logits_run_away", "The largest attention logit goes beyond 1,000.", "logit_growth"),
    _condition("SEV1-3", "attention_collapses", "The entropy of attention goes to zero in most heads.", "entropy_collapse"),
    _condition("SEV1-4", "utilization_collapses", "The hardware does half of the work that it did.", "throughput_drop"),
    _condition("SEV1-5", "tokens_turned_away", "Experts drop tokens and go on doing so.", "dropped_tokens", "router_imbalance"),
    _condition(
        "SEV2-1",
        "mixture_drifts",
        "The training data comes from elsewhere than before.",
        "source_drift",
        "token_drift",
        "input_drift",
        "text_statistics_drift",
    ),
    _condition(
        "SEV2-2",
        "evaluations_regress",
        "Held-out text, or a slice of it, or a benchmark gets worse.",
        "overfitting",
        "slice_regression",
        "benchmark_regression",
    ),
    _condition(
        "SEV2-3",
        "safety_gets_worse",
        "Toxicity, personal data or recitation increase.",
        "toxicity_rising",
        "memorization_rising",
        "unsafe_data",
    ),
    _condition("SEV2-4", "duplicates_increase", "Clusters of near duplicates grow.", "repeated_documents"),
)


# Order of work after an alarm: contain, localize, replay, and explain a benchmark last.
class Stage(Struct, frozen=True, kw_only=True):
    """One stage of work.

    Attributes:
        row: WF-1 to WF-4.
        name: Name in snake_case.
        title: One sentence.
        why: Why it comes at this place.
        do: What to do.
        commands: Commands for it.
    """

    row: str
    name: str
    title: str
    why: str
    do: tuple[str, ...]
    commands: tuple[str, ...]


WORKFLOW = (
    Stage(
        row="WF-1",
        name="contain_first",
        title="Keep the damage from spreading.",
        why="Weights that are NaN, checkpoints that are torn and updates that are skipped get worse with every step.",
        do=(
            "Look for what is not finite, for checkpoints that were not written whole, and for overflow that does not end.",
            "Stop, or go on with guards, as the severity asks; keep the last good checkpoint.",
            "Save the numbers around the first bad step, the last batches before it, and the logs of that time.",
        ),
        commands=("ckaudit triage RUN", "ckaudit triage RUN --event last", "ckaudit validate RUN"),
    ),
    Stage(
        row="WF-2",
        name="localize_in_the_stack",
        title="Find the part of the stack that went wrong first.",
        why="An illness of one part shows in all others soon after: only the order in time tells them apart.",
        do=(
            "Compare since which step numerics, behaviour, data and hardware are ill: what is first is the place to look.",
            "Follow the finding from the metric to the tensor, its operator and its kernel, where the run recorded them.",
        ),
        commands=("ckaudit triage RUN -v", "ckaudit triage RUN --questions 4"),
    ),
    Stage(
        row="WF-3",
        name="replay_what_is_fixed",
        title="Repeat what must not change.",
        why="A fixed batch and pinned evaluation files tell whether the model is another or what it is measured with.",
        do=(
            "Put the fixed batch through the last good checkpoint: its loss has to be what was logged.",
            "Compare the hashes of the evaluation's files with those of the last good evaluation.",
            "Go from the last good checkpoint over the same batches again; what happens again is no accident of hardware.",
        ),
        commands=("ckaudit metrics RUN fixed_probe_loss eval_artifact_hash", "ckaudit hash FILE", "ckaudit validate RUN"),
    ),
    Stage(
        row="WF-4",
        name="benchmarks_in_order",
        title="Where a benchmark fell: evaluation, data, behaviour, and architecture last.",
        why="Each of these costs more to doubt than the one before it, and is more seldom the reason.",
        do=("Ask SR-1 to SR-4 in their order, and go on only where one has passed.",),
        commands=("ckaudit triage RUN --benchmark-drop",),
    ),
)

# Families of rules and questions by code prefix; a longer prefix takes precedence.
PARTS = {
    "numerics": (
        "AMP",
        "CLIP",
        "CURV",
        "GRAD",
        "INIT",
        "LOSS",
        "MODEL",
        "MOVE",
        "NUM",
        "OPT",
        "PARITY",
        "REPLAY",
        "RESUME",
        "SCHED",
        "SIB",
        "WGT",
        "D1",
        "D2",
        "D4",
    ),
    "behaviour": ("ACT", "ATTN", "MASK", "MOE", "PRB", "SAFE", "SIB005", "D2.2", "D2.5", "D3", "D5.5", "D6", "MP"),
    "data": ("DATA", "SAFE001", "D5.4"),
    "hardware": ("COST", "FILE", "RANK", "SIB006", "SYS"),
    "evaluation": ("EVAL", "EVL", "LOSS002", "LOSS006", "SIB002", "SLIC", "D5.1", "D5.2"),
}
RECORDS = "records"


def part_of(code: str) -> str:
    """Return the part of the stack that a rule's code is about; codes on the record itself give "records".

    >>> part_of("NUM001"), part_of("SAFE001"), part_of("SAFE002"), part_of("SYN005")
    ('numerics', 'data', 'behaviour', 'records')
    """
    fitting = [(len(start), part) for part, starts in PARTS.items() for start in starts if code.startswith(start)]
    return max(fitting, default=(0, RECORDS))[1]
