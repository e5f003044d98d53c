"""The four gates: what each asks, why it comes where it does, and what to do where it is the answer."""

from msgspec import Struct


class Asked(Struct, frozen=True, kw_only=True):
    """One gate as a page and a report tell of it.

    Attributes:
        row: SR-1 to SR-4.
        name: In words_with_underscores.
        question: What is asked.
        why: Why it comes here.
        do: What to do where it is the answer.
    """

    row: str
    name: str
    question: str
    why: str
    do: tuple[str, ...]


PROCEDURE = (
    Asked(
        row="SR-1",
        name="evaluation_unchanged",
        question="Did both evaluations use the same artifacts?",
        why="Prompts, tokenizer, few-shot examples and scoring code change without anybody touching the model. While they "
        "differ, two scores do not compare, and everything below would explain a fall that may not exist.",
        do=(
            "Pin the artifacts of the last good evaluation by their hash, and refuse an evaluation that has another.",
            "Score the checkpoint from before the fall with the new artifacts, and the one from after it with the old ones.",
            "Where the score follows the artifacts and not the checkpoint, the model is the same.",
            "Compare scores again only from evaluations of one hash.",
        ),
    ),
    Asked(
        row="SR-2",
        name="data_drift",
        question="Did the training data stay what it was?",
        why="Another mixture, a broken filter or a corpus full of copies teaches something else while the loss looks as ever: "
        "the model learns what it is given.",
        do=(
            "Set the sources that changed aside, and go back to the mixture and the filters from before the step named.",
            "Evaluate slice by slice (slice_val_loss): the slice that fell names the source that is missing or spoilt.",
            "Train a canary of 200 to 2,000 steps from the last good checkpoint on the old data before the run goes on.",
        ),
    ),
    Asked(
        row="SR-3",
        name="internal_drift",
        question="Did the model go on behaving as it did?",
        why="Attention that sharpens, experts that turn tokens away or answers that jump between checkpoints damage a model long "
        "before its loss says so.",
        do=(
            "Go back to the last checkpoint from before the step named, and go on with a lower learning rate or longer warm-up.",
            "Bound the attention logits, by QK-norm or by clipping query and key weights.",
            "Keep softmax, norms and the loss in float32 under mixed precision.",
            "Show on a canary from that checkpoint that the number named stays in its range and the score comes back.",
        ),
    ),
    Asked(
        row="SR-4",
        name="architecture_mismatch",
        question="Does the benchmark ask for what this architecture cannot do?",
        why="It comes last because it costs most to test, and because a model that scored better with the same architecture "
        "could do it before.",
        do=(
            "Choose the one axis that fits the benchmarks that fell; the guide below says which.",
            "Vary it alone, in small trainings of equal compute, with tokenizer, data and evaluation artifacts pinned.",
        ),
    ),
)


def asked(row: str) -> Asked:
    """Return the gate of a row."""
    return next(each for each in PROCEDURE if each.row == row)
