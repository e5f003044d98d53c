"""`ck.fleet.v1`: the result of an audit of many runs, one row per run, and what unhealthy runs have in common."""

from typing import Annotated, Literal

from msgspec import Struct

from ckaudit.contract.schema.numbers import Count, NonNegative, Number, Step, doc
from ckaudit.contract.schema.report import Confidence, Severity

VERSION: Literal["ck.fleet.v1"] = "ck.fleet.v1"

Status = Literal["audited", "unreadable", "error"]
Judged = Literal["all", "limited", "nothing"]
VitalState = Literal["sev0", "sev1", "sev2", "note", "well", "not_judged", "not_applicable", "disabled"]
CommonField = Literal["step", "node", "device", "commit", "config", "start"]


class FleetFinding(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One finding of one run."""

    code: Annotated[str, doc("Code of the finding.")]
    name: Annotated[str, doc("The illness in words_with_underscores.")]
    severity: Annotated[Severity, doc("How grave it is.")]
    message: Annotated[str, doc("What was found, one sentence.")]
    where: Annotated[str | None, doc("Tensor, block, head or scalar.")] = None
    first_step: Annotated[Step | None, doc("First step of its interval.", unit="steps")] = None
    last_step: Annotated[Step | None, doc("Last step of its interval.", unit="steps")] = None


class Curve(Struct, kw_only=True, frozen=True):
    """A series thinned for a chart: its first and last point, and the extremes between them."""

    steps: Annotated[list[Step], doc("Steps.", unit="steps", shape="(N,)")]
    values: Annotated[list[Number], doc("The values.", shape="(N,)")]


class FleetRun(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One run of a fleet, and the result of its audit."""

    run: Annotated[str, doc("Where the run lies: a path or an address, without credentials.")]
    source: Annotated[str, doc("The folder or file to open for it, where that holds several runs; empty: `run`.")] = ""
    status: Annotated[Status, doc("Whether it could be audited; error: the auditor itself failed.")]
    problem: Annotated[str | None, doc("Why it could not be audited.")] = None
    severity: Annotated[Severity | None, doc("The gravest finding; null: none.")] = None
    verdict: Annotated[str, doc("One sentence.")] = ""
    judged: Annotated[Judged | None, doc("Whether every vital check that applies could judge, some could not, or none.")] = None
    cause: Annotated[str | None, doc("The likeliest cause in words_with_underscores.")] = None
    cause_title: Annotated[str | None, doc("The cause as a sentence.")] = None
    confidence: Annotated[Confidence | None, doc("How sure the cause is.")] = None
    knob: Annotated[str | None, doc("What to change first.")] = None
    first_step: Annotated[Step | None, doc("Since when: the first step of the gravest finding.", unit="steps")] = None
    where: Annotated[str | None, doc("Place of the gravest finding.")] = None
    last_step: Annotated[Step | None, doc("The last step recorded.", unit="steps")] = None
    vital: Annotated[
        dict[str, VitalState], doc("By vital check: the gravest finding that answers it, well, or why it is open.")
    ] = {}
    findings: Annotated[list[FleetFinding], doc("Gravest first, then by step; notes among them.")] = []
    state: Annotated[dict[str, Number], doc("Latest value of the main series.")] = {}
    loss: Annotated[Curve | None, doc("The training loss, thinned; null: none recorded.")] = None
    facts: Annotated[
        dict[str, str],
        doc(
            "What run.json says of the run, flat and as text: config.*, git.commit, seed, node, device, data_order, start "
            "(Unix time), environment.*."
        ),
    ] = {}
    siblings: Annotated[Count, doc("Healthy siblings that it was held against.", unit="runs")] = 0
    files: Annotated[Count, doc("Files read.", unit="files")] = 0
    written: Annotated[NonNegative, doc("When its newest file was written, Unix time; 0: not known.", unit="s")] = 0.0
    seconds: Annotated[NonNegative, doc("What the audit cost.", unit="s")] = 0.0
    fingerprint: Annotated[str, doc("Changes where a file of the run, the auditor or its policy does.")] = ""
    audited: Annotated[NonNegative, doc("When it was audited, Unix time; the latest row of a run counts.", unit="s")] = 0.0

    @property
    def is_ill(self) -> bool:
        """Whether the run was audited and has a finding that is graver than a note."""
        return self.status == "audited" and self.severity not in (None, "note")


class CommonCause(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Something that unhealthy runs share far more often than expected by chance."""

    field: Annotated[CommonField, doc("Of what kind it is.")]
    name: Annotated[str, doc("What is shared, such as config.lr or node.")]
    value: Annotated[str, doc("Its value, such as 0.01 or gpu-17.")]
    code: Annotated[str, doc("Code of the finding that those runs have.")]
    sentence: Annotated[str, doc("What it means, with its numbers.")]
    runs: Annotated[list[str], doc("The ill runs that share it.", shape="(N,)")]
    ill_with: Annotated[Count, doc("Ill runs that have the value.", unit="runs")]
    all_with: Annotated[Count, doc("Runs that have the value.", unit="runs")]
    ill_without: Annotated[Count, doc("Ill runs that have another.", unit="runs")]
    all_without: Annotated[Count, doc("Runs that have another.", unit="runs")]
    p_value: Annotated[NonNegative, doc("Chance of so many or more, by the test alone.", unit="1")]
    adjusted_p: Annotated[NonNegative, doc("The same after correction for all that was looked at.", unit="1")]
    tested: Annotated[Count, doc("How many such questions were asked of this fleet.", unit="tests")]


class FleetGroup(Struct, kw_only=True, frozen=True):
    """The runs that share the values of some facts."""

    values: Annotated[list[str | None], doc("Value of each fact they are grouped by; null: not recorded.", shape="(N,)")]
    runs: Annotated[Count, doc("Runs that were audited.", unit="runs")]
    ill: Annotated[Count, doc("Of them, those with a finding that is more than a note.", unit="runs")]
    share: Annotated[Number, doc("Ill over runs.", unit="1")]
    not_audited: Annotated[Count, doc("Runs that could not be audited; they are not among the runs.", unit="runs")] = 0
    cause: Annotated[str | None, doc("The cause, or the finding where none is known, that most ill runs have first.")] = None
    with_cause: Annotated[Count, doc("Ill runs that have it.", unit="runs")] = 0


class Fleet(Struct, kw_only=True, frozen=True):
    """The audit of a fleet."""

    schema_version: Annotated[Literal["ck.fleet.v1"], doc("Which contract this document follows.")]
    tool: Annotated[str, doc("Name and version of the auditor.")]
    subject: Annotated[list[str], doc("The patterns, as the user named them.")]
    verdict: Annotated[str, doc("One sentence.")]
    severity: Annotated[Severity | None, doc("The gravest finding of any run; null: none.")] = None
    runs: Annotated[list[FleetRun], doc("The most urgent first.")] = []
    common_causes: Annotated[list[CommonCause], doc("The least likely by chance first.")] = []
    grouped_by: Annotated[list[str], doc("Facts that the groups share; empty: no groups were asked for.", shape="(N,)")] = []
    groups: Annotated[list[FleetGroup], doc("The groups, those with the largest share of ill runs first.")] = []
    audited: Annotated[Count, doc("Runs that were audited now.", unit="runs")] = 0
    unchanged: Annotated[Count, doc("Runs whose earlier verdict still holds.", unit="runs")] = 0
    notes: Annotated[list[str], doc("What a reader must know of how the audit was made.")] = []
    dataset: Annotated[str, doc("The folder of the data set that holds every row; empty: none was written.")] = ""
