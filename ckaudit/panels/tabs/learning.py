"""The tab on generalization: whether the run learns or memorizes."""

from ckaudit.panels.tab import TabBuilder, tab

READS = (
    "train_loss_at_evals",
    "val_loss",
    "train_val_gap",
    "memorization_curve",
    "memorization_gap",
    "probe_accuracy",
    "probe_group_perplexity",
    "slice_val_loss",
    "tau",
    "microbench_score",
    "memorization_rate",
    "forgetting",
    "loss_above_floor",
    "val_slope",
    "fixed_probe_loss",
    "near_dup_rate",
    "train_val_overlap",
)
LATER = (
    "D2.3",
    "D2.4",
    "D5.2",
    "D5.3",
    "D5.4",
    "D6.1",
    "D6.2",
    "D6.3",
    "D6.4",
    "D6.5",
    "MP-1",
    "MP-2",
    "MP-3",
    "MPC-1",
    "MPC-2",
    "MPC-3",
    "MPC-4",
    "MPC-5",
)
CURVE = [("playbook at 100: 15 %", 15.0), ("playbook at 500: 50 %", 50.0), ("playbook at 2,000: 90 %", 90.0)]


@tab(
    60,
    asks=("D5.1", "D2.2", "D5.5", "MP-4"),
    related_questions=LATER,
    rules=(
        "benchmark_regression",
        "toxicity_rising",
        "repeated_documents",
        "unsafe_data",
        "split_overlap",
        "evaluation_artifact_changed",
    ),
    reads=READS,
)
def learning(builder: TabBuilder) -> None:
    """Is it learning or memorizing?"""
    builder.curves("train_and_val", "Do both losses fall together?", "val_loss", also=("train_loss_at_evals",), marked=True)
    builder.curves("gap", "Does the gap widen?", "train_val_gap", lines=[("no gap", 0.0)])
    builder.curves(
        "memorization", "How much does it know by heart?", "memorization_curve", also=("memorization_rate",), lines=CURVE
    )
    builder.curves("probes", "Does it continue held-out text as well as seen text?", "probe_accuracy")
    builder.curves("probe_perplexity", "Is seen text less surprising than held-out text?", "probe_group_perplexity", log=True)
    builder.curves(
        "slices",
        "Which part of the held-out data is harder?",
        "slice_val_loss",
        also=("tau",),
        note="tau is tau, the loss of irregular forms less that of regular ones",
    )
    builder.curves("benchmarks", "Do small benchmarks rise?", "microbench_score")
    builder.curves("duplicates", "How much of the data is there twice?", "near_dup_rate", right=("train_val_overlap",))
    builder.curves("forgetting", "Does it forget what it knew?", "forgetting")
    builder.curves("floor", "How far is the loss from its floor?", "loss_above_floor", lines=[("the floor", 0.0)])
