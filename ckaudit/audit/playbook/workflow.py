"""The order of the work when an alarm goes off: contain, localize, replay, and explain a benchmark last."""

from msgspec import Struct


class Stage(Struct, frozen=True, kw_only=True):
    """One stage of the work.

    Attributes:
        row: WF-1 to WF-4.
        name: In words_with_underscores.
        title: One sentence.
        why: Why it comes at this place.
        do: What to do.
        commands: What shows or does it.
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

# Families of rules and questions by the beginning of their codes. A longer beginning counts before a shorter one.
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
        "WGT",
        "D1",
        "D2",
        "D4",
    ),
    "behaviour": ("ACT", "ATTN", "MASK", "MOE", "PRB", "SAFE", "D2.2", "D2.5", "D3", "D5.5", "D6", "MP"),
    "data": ("DATA", "SAFE001", "D5.4"),
    "hardware": ("COST", "FILE", "RANK", "SYS"),
    "evaluation": ("EVAL", "EVL", "LOSS002", "LOSS006", "SLIC", "D5.1", "D5.2"),
}
RECORDS = "records"


def part_of(code: str) -> str:
    """Return the part of the stack that a rule's code is about; what judges the record itself is of the records.

    >>> part_of("NUM001"), part_of("SAFE001"), part_of("SAFE002"), part_of("SYN005")
    ('numerics', 'data', 'behaviour', 'records')
    """
    fitting = [(len(start), part) for part, starts in PARTS.items() for start in starts if code.startswith(start)]
    return max(fitting, default=(0, RECORDS))[1]
