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

    id: Annotated[str, doc("The question, such as D4.2; `ckaudit explain` knows it.")]
    question: Annotated[str, doc("The question in words.")]
    word: Annotated[Word, doc("The answer: what is missing is never good.")]
    sentence: Annotated[str, doc("What it rests on, with the numbers and their steps.")]
    numbers: Annotated[dict[str, Number], doc("The numbers by name.")] = {}
    missing: Annotated[list[str], doc("What would have to be recorded for it: metrics, scalars, or a longer record.")] = []
    findings: Annotated[list[str], doc("Codes of the findings that bear on it, gravest first; an answer is never better.")] = []
    causes: Annotated[list[str], doc("Causes of these findings, likeliest first.")] = []


class Pointer(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A command that shows more."""

    id: Annotated[str, doc("The row of the map, such as MAP-2.")]
    question: Annotated[str, doc("What one wants to know.")]
    command: Annotated[str, doc("The command for it.")]
    why: Annotated[str | None, doc("Why it is another command than usual; null: it is the usual one.")] = None


class Phase(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The questions of one phase of a training."""

    number: Annotated[PhaseNumber, doc("1 to 7.")]
    title: Annotated[str, doc("What the phase is about.")]
    answers: Annotated[list[Answer], doc("In the order of the questions.")]
    verdict: Annotated[str | None, doc("What the answers come to, where the phase ends in a decision; null: it does not.")] = None
    pointers: Annotated[list[Pointer], doc("Where to look on.")] = []


class Finding(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One problem: when, where, how much, against which limit, and what to try."""

    code: Annotated[str, doc("Stable code of the rule or violation, such as GRAD001.")]
    name: Annotated[str, doc("The illness in words_with_underscores.")]
    severity: Annotated[Severity, doc("sev0 stop, sev1 contain, sev2 investigate, note.")]
    message: Annotated[str, doc("One sentence with the place, the number and the limit.")]
    where: Annotated[str | None, doc("Tensor, block, head or scalar.")] = None
    group: Annotated[
        str | None, doc("One name of all its places, where they are exactly all of a module, a layer or the model.")
    ] = None
    first_step: Annotated[Step | None, doc("First step of the interval.", unit="steps")] = None
    last_step: Annotated[Step | None, doc("Last step of the interval.", unit="steps")] = None
    worst_step: Annotated[Step | None, doc("Step with the worst value.", unit="steps")] = None
    value: Annotated[Number | None, doc("The worst value.")] = None
    limit: Annotated[Number | None, doc("The limit it broke.")] = None
    unit: Annotated[str | None, doc("Unit of value and limit.")] = None
    points: Annotated[Count | None, doc("Recorded points in the interval.", unit="points")] = None
    also: Annotated[list[str], doc("Other places folded into this finding.")] = []
    path: Annotated[
        list[str], doc("From the metric to the tensor, its operator, the node of its gradient and its kernels, where recorded.")
    ] = []
    file: Annotated[str | None, doc("File, relative to the audited folder.")] = None
    pointer: Annotated[str | None, doc("JSON pointer inside the file.")] = None
    line: Annotated[Count | None, doc("Line in the file, from 1.", unit="lines")] = None
    expected: Annotated[str | None, doc("What the contract asks for.")] = None
    found: Annotated[str | None, doc("What the file says.")] = None
    help: Annotated[str | None, doc("One sentence on what to do.")] = None


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
    weight: Annotated[float, doc("Change of the log odds; negative speaks against.", unit="nats")]
    reference: Annotated[str | None, doc("Code of the finding or name of the metric it rests on.")] = None


class Diagnosis(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One hypothesis about the cause of the findings."""

    cause: Annotated[str, doc("The cause in words_with_underscores.")]
    title: Annotated[str, doc("The cause as a sentence.")]
    confidence: Annotated[Confidence, doc("How often causes of such prior and weights, beside such rivals, were the true ones.")]
    severity: Annotated[Severity, doc("The gravest of the findings it explains.")]
    symptom: Annotated[str, doc("What is seen: the message of the first finding explained.")]
    knob: Annotated[str, doc("What to change first.")]
    inspect: Annotated[str, doc("Where to look.")]
    runbook: Annotated[str, doc("What to save, how to contain, how to reproduce.")]
    evidence: Annotated[list[Evidence], doc("Reasons, strongest first.")]
    explains: Annotated[list[str], doc("Codes of the findings explained, in order of time.")]
    where: Annotated[str | None, doc("First tensor, block or scalar hit.")] = None
    group: Annotated[str | None, doc("One name of all places of the first finding explained, where they have one.")] = None
    path: Annotated[list[str], doc("The path of the first finding explained, from metric to kernels, where recorded.")] = []
    first_step: Annotated[Step | None, doc("First step of the findings explained.", unit="steps")] = None
    may_follow: Annotated[
        str | None, doc("The likeliest cause, where all that this one explains began later and follows from it.")
    ] = None


class Check(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The outcome of one rule or one kind of violation."""

    code: Annotated[str, doc("Stable code.")]
    name: Annotated[str, doc("The illness in words_with_underscores.")]
    title: Annotated[str, doc("What is looked for, one sentence.")]
    severity: Annotated[Severity, doc("The gravest it can be.")]
    outcome: Annotated[Outcome, doc("Whether it was judged, and how.")]
    reason: Annotated[SkipReason | None, doc("Why it was skipped.")] = None
    detail: Annotated[str | None, doc("What was missing, or the error.")] = None
    findings: Annotated[Count, doc("How many findings it made that count.", unit="findings")] = 0
    suppressed: Annotated[Count, doc("How many findings it made that a policy or a baseline accepts.", unit="findings")] = 0


VitalOutcome = Literal["judged", "not_judged", "not_applicable", "disabled"]


class VitalCheck(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One of the questions that every training must pass, and whether the recorded data can answer it."""

    name: Annotated[str, doc("Short name, such as loss_falls.")]
    question: Annotated[str, doc("What it asks.")]
    outcome: Annotated[VitalOutcome, doc("Whether a rule could judge it.")]
    missing: Annotated[str | None, doc("What it would have taken, where it was not judged.")] = None
    remedy: Annotated[str | None, doc("What would have it recorded, in the words of whoever wrote the run.")] = None


class Suppressed(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A finding that does not count, because of a decision or because healthy siblings have it too."""

    finding: Annotated[Finding, doc("What was found.")]
    by: Annotated[
        Literal["policy", "baseline", "siblings"],
        doc("Who accepts it: an ignore of the policy, an entry of the baseline, or the siblings, in which it is normal."),
    ]
    reason: Annotated[str, doc("Why it is accepted.")]
    until: Annotated[str | None, doc("Last day on which it is, as YYYY-MM-DD; null: no end.")] = None


class Sibling(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A run named as a healthy sibling, and whether the audited run is compared with it."""

    run: Annotated[str, doc("The run, as the user named it.")]
    counts: Annotated[bool, doc("Whether it is a yardstick: it can be read, is of the same configuration, and is well itself.")]
    why_not: Annotated[str | None, doc("Why it is none; null: it is.")] = None
    severity: Annotated[Severity | None, doc("The gravest finding in it; null: none, or it was not judged.")] = None
    last_step: Annotated[Step | None, doc("The step up to which it is looked at; null: it was not read.", unit="steps")] = None


class Accepted(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """An entry of a baseline: the finding as it was when it was accepted."""

    command: Annotated[str, doc("Which command found it, triage or validate.")]
    code: Annotated[str, doc("Code of the finding.")]
    name: Annotated[str, doc("The illness in words_with_underscores.")]
    severity: Annotated[Severity, doc("How grave it was; a graver finding is not accepted.")]
    message: Annotated[str, doc("What it said, for the reader; it is not compared.")]
    where: Annotated[str | None, doc("Tensor, block, head or scalar.")] = None
    also: Annotated[list[str], doc("Other places folded into it.")] = []
    first_step: Annotated[Step | None, doc("First step of its interval.", unit="steps")] = None
    file: Annotated[str | None, doc("File, relative to the audited folder.")] = None
    pointer: Annotated[str | None, doc("JSON pointer inside the file.")] = None
    reason: Annotated[str | None, doc("Why it was accepted; written by hand, and kept by updates.")] = None


class PolicyUsed(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The policy under which a report was made."""

    file: Annotated[str, doc("The file it stands in.")]
    scale: Annotated[str | None, doc("Scale of the run that profiles were chosen by; null: nobody said.")] = None
    stage: Annotated[str | None, doc("Stage of the run that profiles were chosen by; null: nobody said.")] = None
    profiles: Annotated[list[str], doc("Profiles that apply, the later before the earlier.")] = []
    changes: Annotated[list[str], doc("What it changes, a setting each.")] = []
    fail_on: Annotated[Severity | None, doc("The least grave severity that fails; null: the policy does not say.")] = None
    require: Annotated[
        Literal["vital"] | None, doc("vital: a run in which a vital check could not judge does not pass; null: it may.")
    ] = None


class Point(Struct, kw_only=True, frozen=True):
    """One named value of a chart."""

    label: Annotated[str, doc("Its step, or its block.")]
    value: Annotated[Number, doc("The value.")]


class Chart(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The data of one chart; renderers decide on its appearance."""

    name: Annotated[str, doc("loss, gradient_waterfall or finding, for instance.")]
    title: Annotated[str, doc("The question the picture answers.")]
    unit: Annotated[str, doc("Unit of the values.")]
    labels: Annotated[list[str], doc("Names of the values, such as steps or blocks.", shape="(N,)")]
    values: Annotated[list[Number | None], doc("The values; null where not recorded.", shape="(N,)")]
    least: Annotated[Point | None, doc("Lowest finite value of all that were recorded, drawn or not.")] = None
    greatest: Annotated[Point | None, doc("Highest finite value of all that were recorded, drawn or not.")] = None
    last: Annotated[Point | None, doc("Last finite value of all that were recorded, drawn or not.")] = None
    remarks: Annotated[list[str], doc("What is to be said beside each value, such as `attn: 0`; empty: nothing of any.")] = []
    finding: Annotated[int | None, doc("Which finding it is of, by its place; null: it is of the run.")] = None


class ResumeCheckpoint(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One checkpoint from which a training could resume."""

    name: Annotated[str, doc("Its folder, or its first file, relative to the audited folder.")]
    step: Annotated[Step | None, doc("The step that it says inside, else that of its name.", unit="steps")] = None
    form: Annotated[str, doc("torch, safetensors, distributed, or several of them.")] = ""
    files: Annotated[Count, doc("Files.", unit="files")] = 0
    size: Annotated[Count, doc("Size of all of its files.", unit="bytes")] = 0
    written: Annotated[float | None, doc("When its last file was written, Unix time.", unit="s")] = None
    seconds: Annotated[
        float | None, doc("From the end of its first file to the end of its last, by their times; null: one file.", unit="s")
    ] = None
    parameters: Annotated[Count, doc("Elements of its weights.", unit="elements")] = 0
    weight_bytes: Annotated[Count, doc("Bytes of its weights.", unit="bytes")] = 0
    optimizer_bytes: Annotated[Count, doc("Bytes of its optimizer state.", unit="bytes")] = 0
    other_bytes: Annotated[Count, doc("Bytes of its other tensors.", unit="bytes")] = 0
    present: Annotated[list[str], doc("What a resume needs and what is there, such as weights or random_state.")] = []
    absent: Annotated[list[str], doc("What an exact resume needs and what is not there.")] = []
    ok: Annotated[
        bool | None, doc("Whether it is whole, finite and as its checksums say; null: not all of it could be judged.")
    ] = None


class Tau(Struct, kw_only=True, frozen=True):
    """The excess loss of the hard slice over the easy one, over the run (F14)."""

    slices: Annotated[tuple[str, str], doc("The easy and the hard slice.")]
    last: Annotated[Number, doc("Tau at the last evaluation that has it.", unit="nats/token")]
    last_step: Annotated[Step, doc("Step of that evaluation.", unit="steps")]
    trend: Annotated[Number | None, doc("Robust slope; null: fewer than three evaluations.", unit="nats/token per 1,000 steps")]
    first: Annotated[Number, doc("Tau at the first evaluation that has it.", unit="nats/token")]
    first_step: Annotated[Step, doc("Step of that evaluation.", unit="steps")]
    peak: Annotated[Number, doc("The largest tau.", unit="nats/token")]
    peak_step: Annotated[Step, doc("Step of the largest tau.", unit="steps")]
    points: Annotated[Count, doc("Evaluations that have it.", unit="points")]


class GradToWeight(Struct, kw_only=True, frozen=True):
    """Gradient norm over weight norm of each tensor, at the last checkpoint that has both (F16)."""

    min: Annotated[Number, doc("The smallest ratio.")]
    min_where: Annotated[str, doc("Tensor of the smallest ratio.")]
    max: Annotated[Number, doc("The largest ratio.")]
    max_where: Annotated[str, doc("Tensor of the largest ratio.")]
    step: Annotated[Step, doc("Step of the checkpoint.", unit="steps")]
    tensors: Annotated[Count, doc("Tensors that have a ratio there.", unit="tensors")]
    below: Annotated[Count, doc("Of them, those below 1e-4.", unit="tensors")]
    above: Annotated[Count, doc("Of them, those above 1e-1.", unit="tensors")]


class Derived(Struct, kw_only=True, frozen=True):
    """The four numbers derived from others; a missing one is null, and `reasons` says why."""

    divergence_step: Annotated[
        Step | None, doc("Step after which held-out and training loss part for good (F12).", unit="steps")
    ] = None
    tau: Annotated[Tau | None, doc("Loss of the hard slice less that of the easy one (F14).")] = None
    spike_flags: Annotated[
        list[Step] | None, doc("Steps at which the training loss spikes, the first hundred (F15).", unit="steps", shape="(N,)")
    ] = None
    spike_flags_count: Annotated[Count | None, doc("All such steps; null: they are not known.", unit="steps")] = None
    grad_to_weight: Annotated[GradToWeight | None, doc("Gradient over weight norm of each tensor (F16).")] = None
    reasons: Annotated[dict[str, str], doc("Why each number that is null is so, by its name.")] = {}


class Report(Struct, kw_only=True, frozen=True):
    """One audit; all members except those of a single command are always written, empty or null if there is nothing."""

    schema_version: Annotated[Literal["ck.report.v1"], doc("Which contract this report follows.")]
    tool: Annotated[str, doc("Name and version of the auditor.")]
    command: Annotated[str, doc("validate, triage, ...")]
    subject: Annotated[str, doc("What was audited, as the user named it.")]
    verdict: Annotated[str, doc("One sentence.")]
    severity: Annotated[Severity | None, doc("The gravest finding; null: none.")] = None
    step: Annotated[Step | None, doc("The step the verdict was made at.", unit="steps")] = None
    judged: Annotated[
        Literal["all", "limited", "nothing"] | None,
        doc("Whether every vital check that applies could judge, some could not, or none could; null: it was not asked."),
    ] = None
    vital: Annotated[list[VitalCheck], doc("The vital checks, and which could judge.")] = []
    to_judge_more: Annotated[str | None, doc("The one line that would let most of the open vital checks judge.")] = None
    state: Annotated[dict[str, Number], doc("Latest value of the main series at that step.")] = {}
    derived: Annotated[
        Derived | None, doc("Divergence step, tau, spike flags and gradient over weight; null: a command without a run.")
    ] = None
    diagnoses: Annotated[list[Diagnosis], doc("Likeliest first.")] = []
    response: Annotated[list[str], doc("What to do now, in order: contain, localize, save, replay; empty: nothing.")] = []
    findings: Annotated[list[Finding], doc("Gravest first, then by step.")] = []
    checks: Annotated[list[Check], doc("Every rule, in the order of codes.")] = []
    charts: Annotated[list[Chart], doc("Data of the pictures.")] = []
    notes: Annotated[list[str], doc("What a reader must know of how the audit was made.")] = []
    files: Annotated[Count, doc("Files read.", unit="files")] = 0
    policy: Annotated[PolicyUsed | None, doc("The policy in force; null: none.")] = None
    baseline: Annotated[str | None, doc("The file of accepted findings; null: none.")] = None
    suppressed: Annotated[list[Suppressed], doc("Findings that do not count, in the order of findings.")] = []
    stale: Annotated[list[Accepted], doc("Entries of the baseline that no finding matches any more.")] = []
    interview: Annotated[list[Phase], doc("Questions and answers by phase, where they were asked for.")] = []
    siblings: Annotated[
        list[Sibling] | UnsetType, doc("The runs that were named as healthy siblings; left out where none was.")
    ] = UNSET
    resume_checkpoints: Annotated[
        list[ResumeCheckpoint] | UnsetType, doc("The checkpoints that resume-check found, by step; other commands leave it out.")
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
