"""The seven phases of a training, and the map from what one wants to know to the command that shows it."""

from typing import NamedTuple


class Way(NamedTuple):
    """One row of the map.

    Attributes:
        id: Such as MAP-1.
        phases: Phases that it stands under.
        question: What one wants to know.
        metrics: What `ckaudit metrics` shows of it, as far as it was recorded.
        command: Another command, where numbers are not what tells; {run} is the run, {event} the step of its first event.
    """

    id: str
    phases: tuple[int, ...]
    question: str
    metrics: tuple[str, ...] = ()
    command: str = ""
    autopsy: str = ""


PHASES: dict[int, str] = {
    1: "Is the machinery right?",
    2: "Does it learn?",
    3: "What has it learnt?",
    4: "Is it stable?",
    5: "Does it generalize?",
    6: "Is it ready for what comes next?",
    7: "What does it know by heart?",
}

MAP: tuple[Way, ...] = (
    Way("MAP-1", (1,), "Is it training?", ("train_loss_raw", "initial_loss_excess", "gradient_norm", "parity_loss_diff")),
    Way("MAP-2", (1,), "Are the gradients right?", ("waterfall_ratio", "block_gradient_norm", "gradient_check_error")),
    Way("MAP-3", (2, 3), "What is it learning?", ("movement_rank", "relative_movement", "head_kind_share", "head_similarity")),
    Way("MAP-4", (2, 7), "Does it memorize?", ("memorization_curve", "memorization_gap", "train_loss_slope", "train_ppl")),
    Way("MAP-5", (4,), "What went wrong?", command="ckaudit triage {run} --event {event}"),
    Way(
        "MAP-6", (5, 6), "Is pretraining done?", ("val_slope", "val_slope_p", "steps_since_improvement", "probe_group_perplexity")
    ),
    Way("MAP-7", (6,), "Is it ready for fine-tuning?", ("microbench_score", "slice_val_loss", "probe_accuracy")),
)
"""In the order of the playbook. A row without anything recorded leads to `ckaudit coverage`, which says how to record it."""
