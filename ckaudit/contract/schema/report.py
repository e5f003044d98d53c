"""`ck.report.v1`: the result of an audit, the same for `validate`, `triage` and every renderer.

A `Finding` is one interval of one problem, or one violation of the contract. A `Diagnosis` is a ranked hypothesis that explains
findings. A `Check` records for each rule whether it passed, failed, was skipped (and why) or crashed. A `Phase` holds the answers
to the playbook's questions.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, Number, Step, doc

Word = Literal["good", "watch", "bad", "not_recorded", "not_applicable"]
WORDS: tuple[Word, ...] = ("good", "watch", "bad", "not_recorded", "not_applicable")

PhaseNumber = Annotated[int, Meta(ge=1, le=7)]

VERSION: Literal["ck.report.v1"] = "ck.report.v1"

Severity = Literal["sev0", "sev1", "sev2", "note"]
Outcome = Literal["passed", "failed", "skipped", "error"]
SkipReason = Literal["not_recorded", "not_applicable", "too_few_points", "not_mergeable", "disabled"]
SEVERITIES: tuple[Severity, ...] = ("sev0", "sev1", "sev2", "note")

Confidence = Annotated[float, Meta(ge=0, le=1)]


class Answer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A run's answer to one question."""

    id: Annotated[str, doc("Identifier of the question, such as D4.2; `ckaudit explain` describes it.")]
    question: Annotated[str, doc("The question in words.")]
    word: Annotated[Word, doc("The answer as one word; missing data never counts as good.")]
    sentence: Annotated[str, doc("The reason for the answer, with its numbers and their steps.")]
    numbers: Annotated[dict[str, Number], doc("The numbers by name.")] = {}
    missing: Annotated[
        list[str], doc("Data that would have to be recorded for an answer: metrics, scalars, or a longer record.")
    ] = []
    findings: Annotated[
        list[str], doc("Codes of related findings, the most severe first; the answer is never better than these findings.")
    ] = []
    causes: Annotated[list[str], doc("Causes of these findings, the most likely first.")] = []


class Pointer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A command that shows more."""

    id: Annotated[str, doc("Row of the playbook's map, such as MAP-2.")]
    question: Annotated[str, doc("The question that the command answers.")]
    command: Annotated[str, doc("The command.")]
    why: Annotated[str | None, doc("Why it is not the usual command; null: it is the usual one.")] = None


class Phase(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The questions of one phase of a training."""

    number: Annotated[PhaseNumber, doc("Number of the phase, 1 to 7.")]
    title: Annotated[str, doc("Topic of the phase.")]
    answers: Annotated[list[Answer], doc("The answers, in the order of the questions.")]
    verdict: Annotated[
        str | None, doc("The conclusion from the answers, if the phase ends in a decision; null: it does not.")
    ] = None
    pointers: Annotated[list[Pointer], doc("Commands that show more.")] = []


class Finding(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One problem: when, where, how much, against which limit, and what to try."""

    code: Annotated[str, doc("Stable code of the rule or violation, such as GRAD001.")]
    name: Annotated[str, doc("Name of the problem in words_with_underscores.")]
    severity: Annotated[Severity, doc("sev0 stop, sev1 contain, sev2 investigate, note.")]
    message: Annotated[str, doc("One sentence with the place, the value and the limit.")]
    where: Annotated[str | None, doc("Tensor, block, head or scalar.")] = None
    group: Annotated[
        str | None, doc("One common name of all places, if they are exactly all of a module, a layer or the model.")
    ] = None
    first_step: Annotated[Step | None, doc("First step of the interval.", unit="steps")] = None
    last_step: Annotated[Step | None, doc("Last step of the interval.", unit="steps")] = None
    worst_step: Annotated[Step | None, doc("Step with the worst value.", unit="steps")] = None
    value: Annotated[Number | None, doc("The worst value.")] = None
    limit: Annotated[Number | None, doc("The violated limit.")] = None
    unit: Annotated[str | None, doc("Unit of value and limit.")] = None
    points: Annotated[Count | None, doc("Number of recorded points in the interval.", unit="points")] = None
    also: Annotated[list[str], doc("Other places merged into this finding.")] = []
    path: Annotated[
        list[str], doc("Path from the metric to the tensor, its operator, the node of its gradient and its kernels, if recorded.")
    ] = []
    file: Annotated[str | None, doc("File, relative to the audited folder.")] = None
    pointer: Annotated[str | None, doc("JSON pointer inside the file.")] = None
    line: Annotated[Count | None, doc("Line in the file, from 1.", unit="lines")] = None
    expected: Annotated[str | None, doc("Value or form that the contract requires.")] = None
    found: Annotated[str | None, doc("Value or form in the file.")] = None
    help: Annotated[str | None, doc("One sentence on how to fix it.")] = None


Place = tuple[str, int]
"""A file, relative to the audited folder, and a line in it, from 1."""

PlaceKey = tuple[str, str | None, int | None]
"""Key that distinguishes the findings of one report: code, place in the model, first step."""


def place_key(finding: Finding) -> PlaceKey:
    """Return the key under which the evidence files of a finding are looked up."""
    return finding.code, finding.where, finding.first_step


class Evidence(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One reason for or against a cause."""

    sentence: Annotated[str, doc("The reason, with its numbers.")]
    weight: Annotated[float, doc("Change of the log odds; a negative weight is evidence against the cause.", unit="nats")]
    reference: Annotated[str | None, doc("Code of the finding or name of the metric that the evidence comes from.")] = None


class Diagnosis(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One hypothesis about the cause of the findings."""

    cause: Annotated[str, doc("The cause in words_with_underscores.")]
    title: Annotated[str, doc("The cause as a sentence.")]
    confidence: Annotated[
        Confidence, doc("How often causes with such a prior, such weights and such rivals were the true cause.")
    ]
    severity: Annotated[Severity, doc("Severity of the most severe finding that the cause explains.")]
    symptom: Annotated[str, doc("The symptom: the message of the first finding explained.")]
    knob: Annotated[str, doc("What to change first.")]
    inspect: Annotated[str, doc("Where to look.")]
    runbook: Annotated[str, doc("What to save, how to contain the problem, and how to reproduce it.")]
    evidence: Annotated[list[Evidence], doc("Reasons, the strongest first.")]
    explains: Annotated[list[str], doc("Codes of the findings explained, ordered by time.")]
    where: Annotated[str | None, doc("First tensor, block or scalar affected.")] = None
    group: Annotated[str | None, doc("One common name of all places of the first finding explained, if there is one.")] = None
    path: Annotated[list[str], doc("Path of the first finding explained, from the metric to the kernels, if recorded.")] = []
    first_step: Annotated[Step | None, doc("First step of the findings explained.", unit="steps")] = None
    may_follow: Annotated[
        str | None, doc("The most likely cause, if all findings that this cause explains began later and follow from it.")
    ] = None


class Check(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The outcome of one rule or one kind of violation."""

    code: Annotated[str, doc("Stable code.")]
    name: Annotated[str, doc("Name of the problem in words_with_underscores.")]
    title: Annotated[str, doc("What the check looks for, in one sentence.")]
    severity: Annotated[Severity, doc("The highest severity that the check can report.")]
    outcome: Annotated[Outcome, doc("Whether the check was judged, and the result.")]
    reason: Annotated[SkipReason | None, doc("Why the check was skipped.")] = None
    detail: Annotated[str | None, doc("What was missing, or the error.")] = None
    findings: Annotated[Count, doc("Number of its findings that count.", unit="findings")] = 0
    suppressed: Annotated[Count, doc("Number of its findings that a policy or a baseline accepts.", unit="findings")] = 0


VitalOutcome = Literal["judged", "not_judged", "not_applicable", "disabled"]


class VitalCheck(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One of the questions that every training must pass, and whether the recorded data can answer it."""

    name: Annotated[str, doc("Short name, such as loss_falls.")]
    question: Annotated[str, doc("The question that the check answers.")]
    outcome: Annotated[VitalOutcome, doc("Whether a rule could judge it.")]
    missing: Annotated[str | None, doc("Data needed to judge it, if it was not judged.")] = None
    remedy: Annotated[str | None, doc("How to record this data, in the terms of the program that wrote the run.")] = None


class Suppressed(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A finding that does not count, because of a decision or because healthy siblings have it too."""

    finding: Annotated[Finding, doc("The finding.")]
    by: Annotated[
        Literal["policy", "baseline", "siblings"],
        doc(
            "What accepts the finding: an ignore rule of the policy, an entry of the baseline, or healthy siblings "
            "that have it too."
        ),
    ]
    reason: Annotated[str, doc("Why the finding is accepted.")]
    until: Annotated[str | None, doc("Last day on which the finding is accepted, as YYYY-MM-DD; null: no end.")] = None


class Sibling(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A run named as a healthy sibling, and whether the audited run is compared with it."""

    run: Annotated[str, doc("The run, as the user named it.")]
    counts: Annotated[
        bool, doc("Whether the run is used for comparison: it is readable, has the same configuration, and is healthy.")
    ]
    why_not: Annotated[str | None, doc("Why the run is not used for comparison; null: it is used.")] = None
    severity: Annotated[
        Severity | None, doc("Severity of the run's most severe finding; null: none, or the run was not judged.")
    ] = None
    last_step: Annotated[Step | None, doc("The step up to which the run is compared; null: it was not read.", unit="steps")] = (
        None
    )


class Accepted(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An entry of a baseline: the finding as it was when it was accepted."""

    command: Annotated[str, doc("The command that reported the finding: triage or validate.")]
    code: Annotated[str, doc("Code of the finding.")]
    name: Annotated[str, doc("Name of the problem in words_with_underscores.")]
    severity: Annotated[Severity, doc("Severity when accepted; a more severe finding is not accepted.")]
    message: Annotated[str, doc("Message of the finding, for the reader; it is not compared.")]
    where: Annotated[str | None, doc("Tensor, block, head or scalar.")] = None
    also: Annotated[list[str], doc("Other places merged into the finding.")] = []
    first_step: Annotated[Step | None, doc("First step of the interval.", unit="steps")] = None
    file: Annotated[str | None, doc("File, relative to the audited folder.")] = None
    pointer: Annotated[str | None, doc("JSON pointer inside the file.")] = None
    reason: Annotated[str | None, doc("Why the finding was accepted; written by hand, and kept by updates.")] = None


class PolicyUsed(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The policy under which a report was made."""

    file: Annotated[str, doc("File that contains the policy.")]
    scale: Annotated[str | None, doc("Scale of the run, which selected the profiles; null: not given.")] = None
    stage: Annotated[str | None, doc("Stage of the run, which selected the profiles; null: not given.")] = None
    profiles: Annotated[list[str], doc("Profiles that apply; a later profile overrides an earlier one.")] = []
    changes: Annotated[list[str], doc("Settings that the policy changes, one per entry.")] = []
    fail_on: Annotated[Severity | None, doc("The lowest severity that fails; null: the policy does not set it.")] = None
    require: Annotated[
        Literal["vital"] | None,
        doc("vital: a run fails if a vital check could not judge it; null: it does not fail for this reason."),
    ] = None


class Point(Struct, kw_only=True, frozen=True):
    """One named value of a chart."""

    label: Annotated[str, doc("Step or block of the value.")]
    value: Annotated[Number, doc("The value.")]


class Chart(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The data of one chart; renderers decide on its appearance."""

    name: Annotated[str, doc("Name of the chart, for example loss, gradient_waterfall or finding.")]
    title: Annotated[str, doc("The question that the chart answers.")]
    unit: Annotated[str, doc("Unit of the values.")]
    labels: Annotated[list[str], doc("Labels of the values, such as steps or blocks.", shape="(N,)")]
    values: Annotated[list[Number | None], doc("The values; null: not recorded.", shape="(N,)")]
    least: Annotated[Point | None, doc("Lowest finite value of all recorded values, drawn or not.")] = None
    greatest: Annotated[Point | None, doc("Highest finite value of all recorded values, drawn or not.")] = None
    last: Annotated[Point | None, doc("Last finite value of all recorded values, drawn or not.")] = None
    remarks: Annotated[list[str], doc("Text beside each value, such as `attn: 0`; empty: no text.")] = []
    finding: Annotated[int | None, doc("Index of the finding that the chart shows; null: it shows the run.")] = None


class ResumeCheckpoint(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One checkpoint from which a training could resume."""

    name: Annotated[str, doc("Folder or first file of the checkpoint, relative to the audited folder.")]
    step: Annotated[Step | None, doc("The step stored in the checkpoint, or else the step in its name.", unit="steps")] = None
    form: Annotated[str, doc("torch, safetensors, distributed, or several of them.")] = ""
    files: Annotated[Count, doc("Number of files.", unit="files")] = 0
    size: Annotated[Count, doc("Size of all files.", unit="bytes")] = 0
    written: Annotated[float | None, doc("When the last file was written, Unix time.", unit="s")] = None
    seconds: Annotated[
        float | None,
        doc("Time between the end of the first file and the end of the last, by their timestamps; null: one file.", unit="s"),
    ] = None
    parameters: Annotated[Count, doc("Number of weight elements.", unit="elements")] = 0
    weight_bytes: Annotated[Count, doc("Size of the weights.", unit="bytes")] = 0
    optimizer_bytes: Annotated[Count, doc("Size of the optimizer state.", unit="bytes")] = 0
    other_bytes: Annotated[Count, doc("Size of the other tensors.", unit="bytes")] = 0
    present: Annotated[list[str], doc("Parts that a resume needs and that are present, such as weights or random_state.")] = []
    absent: Annotated[list[str], doc("Parts that an exact resume needs and that are absent.")] = []
    ok: Annotated[
        bool | None,
        doc("Whether the checkpoint is complete, finite and matches its checksums; null: not all of this could be judged."),
    ] = None


class Tau(Struct, kw_only=True, frozen=True):
    """The excess loss of the hard slice over the easy one, over the run (F14)."""

    slices: Annotated[tuple[str, str], doc("The easy and the hard slice.")]
    last: Annotated[Number, doc("Tau at the last evaluation with a value.", unit="nats/token")]
    last_step: Annotated[Step, doc("Step of that evaluation.", unit="steps")]
    trend: Annotated[Number | None, doc("Robust slope; null: fewer than three evaluations.", unit="nats/token per 1,000 steps")]
    first: Annotated[Number, doc("Tau at the first evaluation with a value.", unit="nats/token")]
    first_step: Annotated[Step, doc("Step of that evaluation.", unit="steps")]
    peak: Annotated[Number, doc("The largest tau.", unit="nats/token")]
    peak_step: Annotated[Step, doc("Step of the largest tau.", unit="steps")]
    points: Annotated[Count, doc("Number of evaluations with a value.", unit="points")]


class GradToWeight(Struct, kw_only=True, frozen=True):
    """Gradient norm over weight norm of each tensor, at the last checkpoint that has both (F16)."""

    min: Annotated[Number, doc("The smallest ratio.")]
    min_where: Annotated[str, doc("Tensor of the smallest ratio.")]
    max: Annotated[Number, doc("The largest ratio.")]
    max_where: Annotated[str, doc("Tensor of the largest ratio.")]
    step: Annotated[Step, doc("Step of the checkpoint.", unit="steps")]
    tensors: Annotated[Count, doc("Number of tensors with a ratio at this step.", unit="tensors")]
    below: Annotated[Count, doc("Number of ratios below 1e-4.", unit="tensors")]
    above: Annotated[Count, doc("Number of ratios above 1e-1.", unit="tensors")]


class Derived(Struct, kw_only=True, frozen=True):
    """The four numbers derived from others; a missing one is null, and `reasons` says why."""

    divergence_step: Annotated[
        Step | None, doc("Step after which held-out and training loss diverge permanently (F12).", unit="steps")
    ] = None
    tau: Annotated[Tau | None, doc("Loss of the hard slice minus that of the easy one (F14).")] = None
    spike_flags: Annotated[
        list[Step] | None, doc("Steps at which the training loss spikes, the first hundred (F15).", unit="steps", shape="(N,)")
    ] = None
    spike_flags_count: Annotated[Count | None, doc("Number of all such steps; null: unknown.", unit="steps")] = None
    grad_to_weight: Annotated[GradToWeight | None, doc("Gradient norm divided by weight norm of each tensor (F16).")] = None
    reasons: Annotated[dict[str, str], doc("Why a number is null, by the name of the number.")] = {}


class Report(Struct, kw_only=True, frozen=True):
    """One audit; all members except those of a single command are always written, empty or null if there is nothing."""

    schema_version: Annotated[Literal["ck.report.v1"], doc("Version of the contract that this report follows.")]
    tool: Annotated[str, doc("Name and version of the auditor.")]
    command: Annotated[str, doc("The command: validate, triage, ...")]
    subject: Annotated[str, doc("What was audited, as the user named it.")]
    verdict: Annotated[str, doc("The verdict as one sentence.")]
    severity: Annotated[Severity | None, doc("Severity of the most severe finding; null: none.")] = None
    step: Annotated[Step | None, doc("The step at which the verdict was made.", unit="steps")] = None
    judged: Annotated[
        Literal["all", "limited", "nothing"] | None,
        doc(
            "Whether all vital checks that apply could judge the run, only some, or none; null: not determined. Of resume "
            "checkpoints, nothing means that none could be judged."
        ),
    ] = None
    vital: Annotated[list[VitalCheck], doc("The vital checks, and which of them could judge.")] = []
    to_judge_more: Annotated[str | None, doc("The one line of code that would let most of the open vital checks judge.")] = None
    state: Annotated[dict[str, Number], doc("Latest values of the main series at that step.")] = {}
    derived: Annotated[
        Derived | None, doc("Divergence step, tau, spike flags and gradient over weight; null: a command without a run.")
    ] = None
    diagnoses: Annotated[list[Diagnosis], doc("Causes, the most likely first.")] = []
    response: Annotated[list[str], doc("What to do now, in order: contain, localize, save, replay; empty: nothing.")] = []
    findings: Annotated[list[Finding], doc("Findings, the most severe first, then by step.")] = []
    checks: Annotated[list[Check], doc("Every rule, ordered by code.")] = []
    charts: Annotated[list[Chart], doc("Data of the charts.")] = []
    notes: Annotated[list[str], doc("Notes on how the audit was made.")] = []
    files: Annotated[Count, doc("Number of files read.", unit="files")] = 0
    policy: Annotated[PolicyUsed | None, doc("The policy that applies; null: none.")] = None
    baseline: Annotated[str | None, doc("The file of accepted findings; null: none.")] = None
    suppressed: Annotated[list[Suppressed], doc("Findings that do not count, in the same order as findings.")] = []
    stale: Annotated[list[Accepted], doc("Entries of the baseline that no longer match a finding.")] = []
    interview: Annotated[list[Phase], doc("Questions and answers by phase, if requested.")] = []
    siblings: Annotated[list[Sibling] | UnsetType, doc("The runs named as healthy siblings; absent if none was named.")] = UNSET
    resume_checkpoints: Annotated[
        list[ResumeCheckpoint] | UnsetType, doc("The checkpoints that resume-check found, by step; absent in other commands.")
    ] = UNSET

    @property
    def is_ill(self) -> bool:
        """Whether anything graver than a note was found."""
        return self.severity not in (None, "note")


def gravest(severities: Iterable[Severity | None]) -> Severity | None:
    """Return the most severe severity; None if there is none.

    >>> gravest(["note", "sev1", None])
    'sev1'
    """
    present = {*severities}
    return next((severity for severity in SEVERITIES if severity in present), None)
