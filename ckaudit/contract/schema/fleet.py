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
    name: Annotated[str, doc("Name of the problem in words_with_underscores.")]
    severity: Annotated[Severity, doc("Severity of the finding.")]
    message: Annotated[str, doc("What was found, one sentence.")]
    where: Annotated[str | None, doc("Tensor, block, head or scalar.")] = None
    first_step: Annotated[Step | None, doc("First step of the interval.", unit="steps")] = None
    last_step: Annotated[Step | None, doc("Last step of the interval.", unit="steps")] = None


class Curve(Struct, kw_only=True, frozen=True):
    """A series thinned for a chart: its first and last point, and the extremes between them."""

    steps: Annotated[list[Step], doc("Steps.", unit="steps", shape="(N,)")]
    values: Annotated[list[Number], doc("The values.", shape="(N,)")]


class FleetRun(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One run of a fleet, and the result of its audit."""

    run: Annotated[str, doc("Location of the run: a path or an address, without credentials.")]
    source: Annotated[str, doc("The folder or file to open, if it holds several runs; empty: `run`.")] = ""
    status: Annotated[Status, doc("Whether it could be audited; error: the auditor itself failed.")]
    problem: Annotated[str | None, doc("Why it could not be audited.")] = None
    severity: Annotated[Severity | None, doc("Severity of the most severe finding; null: none.")] = None
    verdict: Annotated[str, doc("The verdict as one sentence.")] = ""
    judged: Annotated[Judged | None, doc("Whether all vital checks that apply could judge the run, only some, or none.")] = None
    cause: Annotated[str | None, doc("The most likely cause in words_with_underscores.")] = None
    cause_title: Annotated[str | None, doc("The cause as a sentence.")] = None
    confidence: Annotated[Confidence | None, doc("Confidence in the cause.")] = None
    knob: Annotated[str | None, doc("What to change first.")] = None
    first_step: Annotated[Step | None, doc("The first step of the most severe finding.", unit="steps")] = None
    where: Annotated[str | None, doc("Place of the most severe finding.")] = None
    last_step: Annotated[Step | None, doc("The last step recorded.", unit="steps")] = None
    vital: Annotated[
        dict[str, VitalState],
        doc("State of each vital check: the severity of its most severe finding, well, or why it was not judged."),
    ] = {}
    findings: Annotated[list[FleetFinding], doc("Most severe first, then by step; notes are included.")] = []
    state: Annotated[dict[str, Number], doc("Latest value of the main series.")] = {}
    loss: Annotated[Curve | None, doc("The training loss, thinned; null: none recorded.")] = None
    facts: Annotated[
        dict[str, str],
        doc(
            "Facts of run.json, flat and as text: config.*, git.commit, seed, node, device, data_order, start (Unix "
            "time), environment.*."
        ),
    ] = {}
    siblings: Annotated[Count, doc("Healthy siblings that the run was compared with.", unit="runs")] = 0
    files: Annotated[Count, doc("Number of files read.", unit="files")] = 0
    written: Annotated[NonNegative, doc("When the newest file of the run was written, Unix time; 0: unknown.", unit="s")] = 0.0
    seconds: Annotated[NonNegative, doc("Duration of the audit.", unit="s")] = 0.0
    fingerprint: Annotated[str, doc("A hash that changes if a file of the run, the auditor or its policy changes.")] = ""
    audited: Annotated[NonNegative, doc("When the run was audited, Unix time; the latest row of a run is valid.", unit="s")] = 0.0

    @property
    def is_ill(self) -> bool:
        """Whether the run was audited and has a finding that is graver than a note."""
        return self.status == "audited" and self.severity not in (None, "note")


class CommonCause(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Something that unhealthy runs share far more often than expected by chance."""

    field: Annotated[CommonField, doc("Kind of the shared fact.")]
    name: Annotated[str, doc("Name of the shared fact, such as config.lr or node.")]
    value: Annotated[str, doc("Value of the fact, such as 0.01 or gpu-17.")]
    code: Annotated[str, doc("Code of the finding that these runs share.")]
    sentence: Annotated[str, doc("The meaning of the shared fact, with its numbers.")]
    runs: Annotated[list[str], doc("The unhealthy runs that share the value.", shape="(N,)")]
    ill_with: Annotated[Count, doc("Number of unhealthy runs with the value.", unit="runs")]
    all_with: Annotated[Count, doc("Number of runs with the value.", unit="runs")]
    ill_without: Annotated[Count, doc("Number of unhealthy runs with another value.", unit="runs")]
    all_without: Annotated[Count, doc("Number of runs with another value.", unit="runs")]
    p_value: Annotated[NonNegative, doc("Probability of at least this many by chance, from a single test.", unit="1")]
    adjusted_p: Annotated[NonNegative, doc("The same probability, corrected for the number of tests.", unit="1")]
    tested: Annotated[Count, doc("Number of tests made on this fleet.", unit="tests")]


class FleetGroup(Struct, kw_only=True, frozen=True):
    """The runs that share the values of some facts."""

    values: Annotated[list[str | None], doc("Value of each fact that the runs are grouped by; null: not recorded.", shape="(N,)")]
    runs: Annotated[Count, doc("Number of audited runs.", unit="runs")]
    ill: Annotated[Count, doc("Number of audited runs with a finding that is more than a note.", unit="runs")]
    share: Annotated[Number, doc("Unhealthy runs divided by audited runs.", unit="1")]
    not_audited: Annotated[Count, doc("Number of runs that could not be audited; `runs` does not include them.", unit="runs")] = 0
    cause: Annotated[
        str | None, doc("The most frequent first cause of the unhealthy runs, or the finding if no cause is known.")
    ] = None
    with_cause: Annotated[Count, doc("Number of unhealthy runs with this cause.", unit="runs")] = 0


class Fleet(Struct, kw_only=True, frozen=True):
    """The audit of a fleet."""

    schema_version: Annotated[Literal["ck.fleet.v1"], doc("Version of the contract that this document follows.")]
    tool: Annotated[str, doc("Name and version of the auditor.")]
    subject: Annotated[list[str], doc("The patterns, as the user wrote them.")]
    verdict: Annotated[str, doc("The verdict as one sentence.")]
    severity: Annotated[Severity | None, doc("Severity of the most severe finding of any run; null: none.")] = None
    runs: Annotated[list[FleetRun], doc("The runs, the most urgent first.")] = []
    common_causes: Annotated[list[CommonCause], doc("Shared facts, the least likely by chance first.")] = []
    grouped_by: Annotated[list[str], doc("Facts that define the groups; empty: no groups were requested.", shape="(N,)")] = []
    groups: Annotated[list[FleetGroup], doc("The groups, the largest share of unhealthy runs first.")] = []
    audited: Annotated[Count, doc("Number of runs audited in this call.", unit="runs")] = 0
    unchanged: Annotated[Count, doc("Number of runs whose earlier verdict is still valid.", unit="runs")] = 0
    notes: Annotated[list[str], doc("Notes on how the audit was made.")] = []
    dataset: Annotated[str, doc("The folder of the data set with all rows; empty: none was written.")] = ""
