"""`ck.diff.v1`: the result of a comparison of two or more runs, or of two checkpoints.

The first subject is the reference; each other subject is compared with it in a `Pair`. "Better" and "worse" always refer to the
later subject.
"""

from typing import Annotated, Literal, get_args

from msgspec import UNSET, Meta, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, Number, Step, doc
from ckaudit.contract.schema.report import Finding

VERSION: Literal["ck.diff.v1"] = "ck.diff.v1"

Word = Literal["same", "within_noise", "better", "worse", "different", "incomparable", "not_recorded"]
OPEN_WORDS: tuple[Word, ...] = ("incomparable", "not_recorded")
BAD_WORDS: tuple[Word, ...] = ("worse", "different")
Axis = Literal["step", "tokens", "loss"]
AXES: tuple[Axis, ...] = get_args(Axis)
Kind = Literal[
    "schema", "model", "config", "data", "tokenizer", "evaluation", "tokens", "precision", "ranks", "cadence", "environment"
]
Outcome = Literal["passed", "failed", "incomparable"]
Source = Literal["identical", "replicas", "residuals", "none"]


class Unlike(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One difference in the setup of two runs, known before any step is compared."""

    name: Annotated[str, doc("Name of the difference, such as vocabulary or config.weight_decay.")]
    kind: Annotated[Kind, doc("Category of the difference.")]
    left: Annotated[str | None, doc("Value in the first run; null: not recorded.")] = None
    right: Annotated[str | None, doc("Value in the second run; null: not recorded.")] = None
    invalidates: Annotated[list[str], doc("Questions that cannot be answered because of it; empty: none.")] = []
    message: Annotated[str, doc("One sentence: the difference and its meaning for the comparison.")]


class Departure(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A quantity that differs by more than noise explains, and where it first does."""

    statistic: Annotated[str, doc("Catalogue name of the metric.")]
    where: Annotated[str | None, doc("Tensor, block, head or slice; null: the whole run.")] = None
    step: Annotated[Step, doc("First step outside the band, in steps of the second run.", unit="steps")]
    left: Annotated[Number | None, doc("The first run's value at this step.")] = None
    right: Annotated[Number | None, doc("The second run's value at this step.")] = None
    band: Annotated[Number, doc("Largest difference that noise explains at this step; 0 if the runs were identical before.")] = (
        0.0
    )
    unit: Annotated[str, doc("Unit of the values and the band.")] = "1"
    message: Annotated[str, doc("One sentence with the step, the place and the numbers.")]


class Drift(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The distance between the same part of two models at one step."""

    measure: Annotated[str, doc("wasserstein, psi, grid, norm, head_entropy or movement_rank.")]
    section: Annotated[str, doc("weights, gradients, activations, weight_deltas or attention.")]
    where: Annotated[str | None, doc("Tensor, layer or head; null: the whole run.")] = None
    step: Annotated[Step, doc("Step of the checkpoint in the second run.", unit="steps")]
    left: Annotated[Number | None, doc("The first run's value, if the measure compares two values.")] = None
    right: Annotated[Number | None, doc("The second run's value, if the measure compares two values.")] = None
    value: Annotated[Number, doc("The distance.")]
    unit: Annotated[str, doc("Unit of the distance.")] = "1"
    message: Annotated[str, doc("One sentence with the place and the number.")]


class Answer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A question about both runs, and how the second run compares with the first."""

    question: Annotated[str, doc("Name of the question, such as final_loss.")]
    title: Annotated[str, doc("The question as a sentence.")]
    word: Annotated[Word, doc("The verdict on the second run.")]
    left: Annotated[Number | None, doc("The first run's value; for a loss with replicas, the mean of all of them.")] = None
    left_alone: Annotated[Number | None, doc("The first run's own value, if `left` is a mean of several runs.")] = None
    right: Annotated[Number | None, doc("The second run's value.")] = None
    band: Annotated[Number | None, doc("Largest difference that noise explains; null: unknown.")] = None
    unit: Annotated[str, doc("Unit of the values and the band.")] = "1"
    message: Annotated[str, doc("One sentence with the numbers, or with the data that is missing.")]
    excused: Annotated[str | None, doc("Why a gate ignores this answer; null: it counts.")] = None


class Noise(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The limits that distinguish a difference from chance."""

    source: Annotated[
        Source,
        doc("identical: the runs agree at first, except for rounding; replicas: --noise; residuals: each run's own; none."),
    ]
    replicas: Annotated[list[str], doc("The runs that the band was estimated from.")] = []
    message: Annotated[str, doc("One sentence on the band and its reliability.")]


class Curve(Struct, kw_only=True, frozen=True):
    """One quantity of both runs, for a chart."""

    name: Annotated[str, doc("Catalogue name of the metric.")]
    unit: Annotated[str, doc("Unit of the values.")]
    steps: Annotated[list[Step], doc("Last step of each interval, in steps of the second run.", unit="steps", shape="(N,)")]
    left: Annotated[
        list[Number | None],
        doc("The first run's median of each interval; a word such as NaN for a value that is not finite.", shape="(N,)"),
    ]
    right: Annotated[list[Number | None], doc("The second run's median of each interval, in the same form.", shape="(N,)")]


class Pair(Struct, kw_only=True, frozen=True):
    """One subject compared with the reference; all members except the limits are always written."""

    left: Annotated[str, doc("The reference.")]
    right: Annotated[str, doc("The subject that is judged.")]
    word: Annotated[Word, doc("The overall verdict.")]
    verdict: Annotated[str, doc("The verdict as one sentence.")]
    noise: Annotated[Noise, doc("The limits that distinguish a difference from chance.")]
    unlike: Annotated[list[Unlike], doc("Differences in the setup; those that invalidate the most questions come first.")] = []
    answers: Annotated[list[Answer], doc("Questions, in the order of the catalogue.")] = []
    parting: Annotated[Departure | None, doc("The first scalar outside the band, where the runs diverge; null: they do not.")] = (
        None
    )
    propagation: Annotated[
        list[Departure], doc("The quantities that left the band, ordered by step and then by the forward pass.")
    ] = []
    drifts: Annotated[list[Drift], doc("Distances between the parts of both models, the largest of each measure first.")] = []
    curves: Annotated[list[Curve], doc("Chart data: the loss of both runs.")] = []
    gained: Annotated[list[Finding], doc("Findings that only the second run has.")] = []
    lost: Annotated[list[Finding], doc("Findings that only the first run has.")] = []
    left_limits: Annotated[
        str | UnsetType, doc("Vital checks that could not judge the first run; absent if all that apply could.")
    ] = UNSET
    right_limits: Annotated[
        str | UnsetType, doc("Vital checks that could not judge the second run, and the part of its plan that it completed.")
    ] = UNSET
    notes: Annotated[list[str], doc("Notes on how this pair was compared.")] = []


class Gated(Struct, kw_only=True, frozen=True):
    """The decision of a gate on a comparison, and its terms; all members are always written."""

    outcome: Annotated[Outcome, doc("passed, failed, or incomparable if this cannot be decided.")]
    reasons: Annotated[list[str], doc("Reasons why it did not pass, one sentence each.")] = []
    counts: Annotated[list[str], doc("Questions that count for the decision.")] = []
    allowed: Annotated[
        dict[str, float], doc("Loss that is allowed for each question, as a share of the reference.", unit="1")
    ] = {}
    expected: Annotated[list[str], doc("Expected differences that are present.")] = []
    policy: Annotated[str | None, doc("The file of the policy with these terms; null: none.")] = None


class Comparison(Struct, kw_only=True, frozen=True):
    """A whole comparison; all members are always written."""

    schema_version: Annotated[Literal["ck.diff.v1"], doc("Version of the contract that this document follows.")]
    tool: Annotated[str, doc("Name and version of the auditor.")]
    command: Annotated[str, doc("diff or gate.")]
    subjects: Annotated[
        Annotated[list[str], Meta(min_length=2, max_length=20)],
        doc("The compared subjects, the reference first; for a gate, the canary last."),
    ]
    axis: Annotated[Axis, doc("The axis on which the runs were aligned.")] = "step"
    word: Annotated[Word, doc("The worst verdict of all pairs.")]
    verdict: Annotated[str, doc("The verdict as one sentence.")]
    pairs: Annotated[
        list[Pair], doc("Every other subject compared with the first; for a gate, the canary compared with each good run.")
    ] = []
    notes: Annotated[list[str], doc("Notes on how the comparison was made.")] = []
    files: Annotated[Count, doc("Number of files read.", unit="files")] = 0
    gate: Annotated[Gated | None, doc("The decision of the gate; null: the command was not gate.")] = None
