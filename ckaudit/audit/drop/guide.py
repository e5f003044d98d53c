"""The procedure as tables: the four gates (SR-1 to SR-4), and the guide to architecture."""

from msgspec import Struct

from ckaudit.metrics.catalogue import Condition


class GateDescription(Struct, frozen=True, kw_only=True):
    """Description of one gate for pages and reports.

    Attributes:
        row: SR-1 to SR-4.
        name: Name in snake_case.
        question: The question.
        why: Why it comes at this place.
        do: What to do if it is the answer.
    """

    row: str
    name: str
    question: str
    why: str
    do: tuple[str, ...]


PROCEDURE = (
    GateDescription(
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
    GateDescription(
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
    GateDescription(
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
    GateDescription(
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


def gate_description(row: str) -> GateDescription:
    """Return the description of a gate by its row."""
    return next(gate for gate in PROCEDURE if gate.row == row)


# The guide to architecture: which axis a kind of benchmark points to, and which small experiment tests it.
ONE_AXIS = "One change at a time, in canaries of equal compute; tokenizer, data manifest and evaluation artifacts pinned."


class GuideRow(Struct, frozen=True, kw_only=True):
    """One row of the guide.

    Attributes:
        row: ARC-1 to ARC-3, ME-1 to ME-4.
        name: Name in snake_case.
        title: One sentence.
        when: Which benchmarks point to it.
        text: Background.
        test: What to try.
        facts: Published numbers, each with its source.
        looks_at: Metrics whose last values describe this run.
        only_with: What a run must have for it to apply.
    """

    row: str
    name: str
    title: str
    when: str
    text: str
    test: str
    facts: tuple[str, ...] = ()
    looks_at: tuple[str, ...] = ()
    only_with: Condition = ""


HEADS = "64 heads in place of 128 were kept, because 128 cost 83 % more inference FLOPs at 128k tokens (Kimi K2 report, 2025)"
WINDOWS = (
    "windows of 128 tokens in five layers of six, full attention in the sixth, need about a sixth of the key-value cache; the "
    "context was extended to 256k tokens, and retrieval succeeded nearly always from 32k to 256k (MiMo-V2-Flash report)"
)
DEEPSEEK = "671 billion parameters, 37 billion active for a token, trained without a spike that stayed (DeepSeek-V3 report, 2024)"
GLM = "256 experts and only 80 layers, to exchange less between devices: 744 billion parameters, 40 billion active (GLM-5 report)"

GUIDE = (
    GuideRow(
        row="ARC-1",
        name="long_context",
        title="Long context: retrieval and reasoning over many tokens.",
        when="benchmarks with long inputs fell, and short ones of the same kind did not",
        text="What a model can do with long inputs hangs on the lengths that it was trained on, and on which keys its attention "
        "can reach: all, chosen ones, or a window.",
        test="Evaluate in slices of length first. Then compare length curricula, and full with sparse or windowed attention.",
        facts=(WINDOWS, "sparse attention that chooses its keys kept long-context scores at lower cost (DeepSeek-V3.2 report)"),
        looks_at=("seq_len_p50_p95", "pad_fraction"),
        only_with="attention",
    ),
    GuideRow(
        row="ARC-2",
        name="experts_specialise",
        title="Mixture of experts: code, mathematics and other domains that experts share out among themselves.",
        when="benchmarks of one domain fell, in a model with experts",
        text="How well experts specialise hangs on how many there are, how many answer a token, how wide they are, and whether "
        "the router uses them all without turning tokens away.",
        test="Look at dropped tokens and at the spread over experts first: below 1 % dropped is usual. Only then change the "
        "number of experts or their width.",
        facts=(DEEPSEEK, GLM),
        looks_at=("moe_drop_rate", "moe_util_entropy"),
        only_with="experts",
    ),
    GuideRow(
        row="ARC-3",
        name="sharpness_and_stability",
        title="Sharpness: how large attention logits and learning rate may become before training is unstable.",
        when="scores fell after restless steps, or at the peak of the learning rate",
        text="Sharp attention goes with unstable training: logits grow and entropy falls before the loss moves.",
        test="Repeat the stretch with a lower peak, and with QK-norm or clipped query and key weights, each alone.",
        facts=("attention entropy that collapses goes with training that diverges (Zhai et al. 2023)",),
        looks_at=("max_attn_logit", "attn_entropy", "learning_rate"),
        only_with="attention",
    ),
    GuideRow(
        row="ME-1",
        name="depth_or_width",
        title="Depth against width, at equal parameters or equal compute.",
        when="tasks of many steps fell (depth), or broad knowledge did (width)",
        text="Within a wide range the shape hardly matters for the loss: a small change mends no large fall, unless the model is "
        "extreme in one of both.",
        test="Two canaries of equal parameters, one a third deeper and narrower, one a third wider and shallower.",
        facts=("depth and width matter little within a wide range, at equal parameters (Kaplan et al. 2020, section 3.1)",),
    ),
    GuideRow(
        row="ME-2",
        name="heads_or_head_dimension",
        title="Number of heads against their dimension, at equal width.",
        when="long-context tasks fell, or tasks that need many things attended to at once",
        text="More heads look at more things, each more coarsely, and make long inputs dear: weigh the score against what it "
        "costs to serve.",
        test="Half and twice the heads at equal width; compare slices of length and the inference FLOPs of each.",
        facts=(HEADS,),
        looks_at=("attn_entropy",),
        only_with="attention",
    ),
    GuideRow(
        row="ME-3",
        name="experts_and_capacity_factor",
        title="Number of experts and capacity factor.",
        when="one domain fell, and tokens are dropped or experts lie idle",
        text="The capacity factor is the room that each expert has, over its fair share: too little drops tokens, too much "
        "wastes arithmetic on padding.",
        test="Capacity factors of 1, 1.25 and 2 with the same experts; then twice the experts at the factor that drops least.",
        facts=(
            "fewer than 1 % of tokens dropped are usual, at capacity factors of 1 to 1.25 (Fedus et al. 2021, section 2.2)",
            GLM,
        ),
        looks_at=("moe_drop_rate", "moe_util_entropy"),
        only_with="experts",
    ),
    GuideRow(
        row="ME-4",
        name="sparse_or_full_attention",
        title="Sparse or windowed attention against full attention.",
        when="only long inputs fell",
        text="A window or a choice of keys saves time and memory, and loses what lies outside of it.",
        test="The same model with full attention on a canary of long sequences: if the score comes back, the window is too "
        "narrow or the choice is wrong.",
        facts=(WINDOWS,),
        looks_at=("seq_len_p50_p95",),
        only_with="attention",
    ),
)
