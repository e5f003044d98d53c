"""`ck.diff.v1`: the result of a comparison of two or more runs, or of two checkpoints.

The first subject is the reference; each other subject is compared with it in a `Pair`. "Better" and "worse" always refer to the
later subject.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, Number, Step, doc
from ckaudit.contract.schema.report import Finding

VERSION: Literal["ck.diff.v1"] = "ck.diff.v1"

Word = Literal["same", "within_noise", "better", "worse", "different", "incomparable", "not_recorded"]
OPEN_WORDS: tuple[Word, ...] = ("incomparable", "not_recorded")
BAD_WORDS: tuple[Word, ...] = ("worse", "different")
Axis = Literal["step", "tokens", "loss"]
Kind = Literal[
    "schema", "model", "config", "data", "tokenizer", "evaluation", "tokens", "precision", "ranks", "cadence", "environment"
]
Outcome = Literal["passed", "failed", "incomparable"]
Source = Literal["identical", "replicas", "residuals", "none"]


class Unlike(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One difference in the setup of two runs, known before any step is compared."""

    name: Annotated[str, doc("What it is, such as vocabulary or config.weight_decay.")]
    kind: Annotated[Kind, doc("What it belongs to.")]
    left: Annotated[str | None, doc("What the first says; null: not recorded.")] = None
    right: Annotated[str | None, doc("What the second says; null: not recorded.")] = None
    invalidates: Annotated[list[str], doc("Questions that it leaves without an answer; empty: none.")] = []
    message: Annotated[str, doc("One sentence: the difference, and what it means for the comparison.")]


class Departure(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A quantity that differs by more than noise explains, and where it first does."""

    statistic: Annotated[str, doc("Catalogue name of the metric.")]
    where: Annotated[str | None, doc("Tensor, block, head or slice; null: the run as a whole.")] = None
    step: Annotated[Step, doc("First step outside, of the second run.", unit="steps")]
    left: Annotated[Number | None, doc("The first run's value there.")] = None
    right: Annotated[Number | None, doc("The second run's value there.")] = None
    band: Annotated[Number, doc("Largest difference that noise explains there; 0 where the runs were identical before.")] = 0.0
    unit: Annotated[str, doc("Unit of the values and the band.")] = "1"
    message: Annotated[str, doc("One sentence with the step, the place and the numbers.")]


class Drift(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The distance between the same part of two models at one step."""

    measure: Annotated[str, doc("wasserstein, psi, grid, norm, head_entropy or movement_rank.")]
    section: Annotated[str, doc("weights, gradients, activations, weight_deltas or attention.")]
    where: Annotated[str | None, doc("Tensor, layer or head; null: the run as a whole.")] = None
    step: Annotated[Step, doc("Step of the checkpoint, of the second run.", unit="steps")]
    left: Annotated[Number | None, doc("The first run's value, where the measure compares two.")] = None
    right: Annotated[Number | None, doc("The second run's value, where the measure compares two.")] = None
    value: Annotated[Number, doc("The distance.")]
    unit: Annotated[str, doc("Unit of the distance.")] = "1"
    message: Annotated[str, doc("One sentence with the place and the number.")]


class Answer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A question about both runs, and how the second run compares with the first."""

    question: Annotated[str, doc("Its name, such as final_loss.")]
    title: Annotated[str, doc("The question as a sentence.")]
    word: Annotated[Word, doc("The verdict on the second run.")]
    left: Annotated[Number | None, doc("The first run's value; of a loss with replicas, the mean of all of them.")] = None
    left_alone: Annotated[Number | None, doc("The first run's own value, where `left` is a mean of several.")] = None
    right: Annotated[Number | None, doc("The second run's value.")] = None
    band: Annotated[Number | None, doc("Largest difference that noise explains; null: nobody knows.")] = None
    unit: Annotated[str, doc("Unit of the values and the band.")] = "1"
    message: Annotated[str, doc("One sentence with the numbers, or what is missing.")]
    excused: Annotated[str | None, doc("Why a gate does not count it; null: it counts.")] = None


class Noise(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The limits that distinguish a difference from chance."""

    source: Annotated[
        Source, doc("identical: the runs agree at first, but for rounding; replicas: --noise; residuals: each run's own; none.")
    ]
    replicas: Annotated[list[str], doc("The runs that the band was taken from.")] = []
    message: Annotated[str, doc("One sentence on the band and how far to trust it.")]


class Curve(Struct, kw_only=True, frozen=True):
    """One quantity of both runs, for a chart."""

    name: Annotated[str, doc("Catalogue name of the metric.")]
    unit: Annotated[str, doc("Unit of the values.")]
    steps: Annotated[list[Step], doc("Last step of each stretch, of the second run.", unit="steps", shape="(N,)")]
    left: Annotated[list[Number | None], doc("The first run's median; the word for a number that is none.", shape="(N,)")]
    right: Annotated[list[Number | None], doc("The second run's median, likewise.", shape="(N,)")]


class Pair(Struct, kw_only=True, frozen=True):
    """One subject compared with the reference; all members except the limits are always written."""

    left: Annotated[str, doc("The reference.")]
    right: Annotated[str, doc("The subject judged.")]
    word: Annotated[Word, doc("What it all comes to.")]
    verdict: Annotated[str, doc("The same as one sentence.")]
    noise: Annotated[Noise, doc("What tells a difference from chance.")]
    unlike: Annotated[list[Unlike], doc("What is not alike, what invalidates most first.")] = []
    answers: Annotated[list[Answer], doc("Questions, in the order of the catalogue.")] = []
    parting: Annotated[Departure | None, doc("Where the runs part: the first scalar outside the band; null: nowhere.")] = None
    propagation: Annotated[list[Departure], doc("What left the band, in order of steps and then of the forward pass.")] = []
    drifts: Annotated[list[Drift], doc("How far parts have come apart, the farthest of each measure first.")] = []
    curves: Annotated[list[Curve], doc("Data of pictures: the loss of both.")] = []
    gained: Annotated[list[Finding], doc("Findings that only the second has.")] = []
    lost: Annotated[list[Finding], doc("Findings that only the first has.")] = []
    left_limits: Annotated[
        str | UnsetType, doc("Which vital checks of the first could not judge; left out where all that apply could.")
    ] = UNSET
    right_limits: Annotated[str | UnsetType, doc("The same of the second, and how much of its own plan is done.")] = UNSET
    notes: Annotated[list[str], doc("What a reader must know of this pair.")] = []


class Gated(Struct, kw_only=True, frozen=True):
    """The decision of a gate on a comparison, and its terms; all members are always written."""

    outcome: Annotated[Outcome, doc("passed, failed, or incomparable where nobody can tell.")]
    reasons: Annotated[list[str], doc("Why it did not pass, a sentence each.")] = []
    counts: Annotated[list[str], doc("Questions that count.")] = []
    allowed: Annotated[dict[str, float], doc("Loss that a question may show, as a share of the reference.", unit="1")] = {}
    expected: Annotated[list[str], doc("Differences that were foreseen, and are there.")] = []
    policy: Annotated[str | None, doc("The file that says so; null: none does.")] = None


class Comparison(Struct, kw_only=True, frozen=True):
    """A whole comparison; all members are always written."""

    schema_version: Annotated[Literal["ck.diff.v1"], doc("Which contract this document follows.")]
    tool: Annotated[str, doc("Name and version of the auditor.")]
    command: Annotated[str, doc("diff or gate.")]
    subjects: Annotated[
        Annotated[list[str], Meta(min_length=2, max_length=20)],
        doc("What was compared, the reference first; of a gate, the canary last."),
    ]
    axis: Annotated[Axis, doc("What the runs were aligned by.")] = "step"
    word: Annotated[Word, doc("The gravest word of all pairs.")]
    verdict: Annotated[str, doc("One sentence.")]
    pairs: Annotated[list[Pair], doc("Every subject after the first against it; of a gate, the canary against each.")] = []
    notes: Annotated[list[str], doc("What a reader must know of how the comparison was made.")] = []
    files: Annotated[Count, doc("Files read.", unit="files")] = 0
    gate: Annotated[Gated | None, doc("What the gate says; null: nobody asked it.")] = None
